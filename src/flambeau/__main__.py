# SPDX-License-Identifier: Apache-2.0
"""``python -m flambeau`` is the command ``flambeau``."""

from flambeau.cli import main

if __name__ == "__main__":
    main()
