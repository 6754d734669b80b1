"""All settings, in one place: TURNLOG_* variables over turnlog.toml over the defaults.

`[limits] queue_depth = 10` in turnlog.toml is TURNLOG_LIMITS_QUEUE_DEPTH=10. The file is ./turnlog.toml, or what
TURNLOG_CONFIG names. `load` gives them or raises BadSettings; `explain` tells where each came from.
"""

from infra.settings.explain import Explained, explain, unknown_variables
from infra.settings.model import BadSettings, Role, SettingMissing, Settings, load

__all__ = [
    "BadSettings",
    "Explained",
    "Role",
    "SettingMissing",
    "Settings",
    "explain",
    "load",
    "unknown_variables",
]
