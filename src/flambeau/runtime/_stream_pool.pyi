# SPDX-License-Identifier: Apache-2.0
def forget() -> None:
    """Every handle is void."""
