"""``python -m commcalc`` is the command ``commcalc``."""

from commcalc.cli import main

main()
