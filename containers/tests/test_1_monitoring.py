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


def panels():
    return json.loads(DASHBOARD.read_text())["panels"]


def expressions():
    """What the dashboard asks of Prometheus, with Grafana's variables filled in."""
    asked = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    return [re.sub(r"\$__(rate_interval|range)", "1m", one) for one in asked]


def used():
    """Each series that rules and dashboard name, histograms by their own name."""
    rules = "".join(line for line in RULES.read_text().splitlines(True) if not re.match(r"\s*(action|summary|#)", line))
    return {name.removesuffix("_bucket") for name in NAME.findall(rules + "\n".join(expressions()))}


class Monitoring(unittest.TestCase):
    def test_every_series_is_exported(self):
        self.assertEqual(used() - exported(), set())

    def test_promtool_accepts_the_rules(self):
        run("promtool", "check", "config", CONTAINERS / "prometheus/prometheus.yml")

    def test_the_rules_fire_where_they_must(self):
        run("promtool", "test", "rules", RULE_TESTS)

    def test_the_dashboard_is_as_grafana_reads_it(self):
        numbers = [panel["id"] for panel in panels()]
        self.assertEqual(len(numbers), len(set(numbers)), "each panel has a number of its own")
        places = [(x, y) for panel in panels() for at in [panel["gridPos"]]
                  for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        self.assertEqual(len(places), len(set(places)), "no panel lies on another")
        self.assertLess(max(x for x, _ in places), 24, "the grid's width")
        for panel in panels():
            with self.subTest(panel["title"]):
                self.assertIn(panel["type"], {"row", "stat", "timeseries", "bargauge"})
                names = [target["refId"] for target in panel.get("targets", [])]
                self.assertEqual(len(names), len(set(names)))
                self.assertTrue(names or panel["type"] == "row")
                self.assertNotIn("${", json.dumps(panel), "a variable that nothing sets")

    def test_what_is_provisioned_fits_together(self):
        provisioning = CONTAINERS / "grafana/provisioning"
        source = (provisioning / "datasources/prometheus.yaml").read_text()
        uid = re.search(r"uid: (\w+)", source)[1]
        self.assertEqual({panel["datasource"]["uid"] for panel in panels() if "datasource" in panel}, {uid})
        compose = (CONTAINERS / "compose.yaml").read_text()
        folder = re.search(r"path: ([\w/]+)", (provisioning / "dashboards/decant.yaml").read_text())[1]
        self.assertIn(f"./grafana/dashboards:{folder}:ro", compose)
        self.assertIn("./grafana/provisioning:/etc/grafana/provisioning:ro", compose)
        for variable in re.findall(r"\$\{(\w+)\}", source):
            self.assertIn(f"      {variable}: ", compose, "Grafana is given what its provisioning names")

    def test_every_alert_is_tested(self):
        alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
        tested = set(re.findall(r'alertname="(\w+)"|alertname: (\w+)', RULE_TESTS.read_text()))
        self.assertEqual(alerts - {name for pair in tested for name in pair}, set())


if __name__ == "__main__":
    unittest.main()
