"""The alert rules and the dashboard, without the stack: promtool's own checks, and that every series they name is one."""

import json
import re
import unittest
from pathlib import Path

from lab import CONTAINERS, run

ROOT = CONTAINERS.parent
RULES, RULE_TESTS = CONTAINERS / "prometheus/alerts.yml", CONTAINERS / "prometheus/alerts_test.yml"
DASHBOARD = CONTAINERS / "grafana/dashboards/decant.json"
SOURCES = [ROOT / "proxy/src/telemetry.rs", ROOT / "proxy/src/supervisor/admin.rs", ROOT / "allocator/src/metrics.rs"]
NAME = re.compile(r"\bdecant_[a-z_]+\b")


def exported():
    text = "".join(path.read_text() for path in SOURCES)
    return set(re.findall(r'"(decant_[a-z_]+)"', text))


def used():
    """Each series that rules and dashboard name, histograms by their own name."""
    rules = "".join(line for line in RULES.read_text().splitlines(True) if not re.match(r"\s*(action|summary|#)", line))
    expressions = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", [])]
    return {name.removesuffix("_bucket") for name in NAME.findall(rules + "\n".join(expressions))}


class Monitoring(unittest.TestCase):
    def test_every_series_is_exported(self):
        self.assertEqual(used() - exported(), set())

    def test_promtool_accepts_the_rules(self):
        run("promtool", "check", "config", CONTAINERS / "prometheus/prometheus.yml")

    def test_the_rules_fire_where_they_must(self):
        run("promtool", "test", "rules", RULE_TESTS)

    def test_every_alert_is_tested(self):
        alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
        tested = set(re.findall(r'alertname="(\w+)"|alertname: (\w+)', RULE_TESTS.read_text()))
        self.assertEqual(alerts - {name for pair in tested for name in pair}, set())


if __name__ == "__main__":
    unittest.main()
