package store

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/tools/page"
)

// TestKeysAreDocumented compares the tables of docs/contributing/table-items.md
// with every key that this package can build. The test fails if a key has no row
// or a row has no key.
func TestKeysAreDocumented(t *testing.T) {
	built := map[string]engine.Key{
		"App": appKey("o", "n"), "Version": versionKey("ver_1"), "VersionRef": versionRefKey("app_1", time.Now(), "ver_1"), "VersionName": versionNameKey("app_1", "v1.4.0"), "VersionNames": versionNamesKey("ver_1"), "Install": installKey("o", "n"),
		"Component": componentKey("ins_1", "c"), "DeploymentRef": deploymentRefKey("ins_1", "dep_1"),
		"ActionSchedule": actionScheduleKey("ins_1", "a"), "StateHead": stateKey("ins_1", "c"), "Deployment": deploymentKey("dep_1"), "Job": jobKey("job_1"), "ChangeSet": changeSetKey("job_1", 2),
		"Runner": runnerKey("o", "n"), "RunnerName": runnerByIDKey("run_1"), "Session": sessionKey("run_1", "ses_1"),
		"Agent": agentKey("run_1", "k"), "OpenSessions": openSessionsKey("run_1", "h"), "Trust": trustKey("run_1", "n"), "TokenUse": tokenUseKey("h"), "Enrolment": enrolmentKey("h"), "Token": tokenKey("h"), "TokenRef": tokenRefKey("o", "n"),
		"Generation": generationKey(), "KeySets": keySetsKey(), "Count": countKey(Counted{Org: "o", Quota: "n"}), "Requests": requestsKey("o", 1, "p"), "Idempotency": idempotencyKey("h"), "Stack": stackKey("run_1"), "StackRef": stackRefKey("ins_1"),
		"SharedRunner": runnerKey("", "n"), "RunnerUse": runnerUseKey("run_1", "ins_1"), "RunnerRule": ruleKey("o", "h"), "RunnerSlots": runnerSlotsKey("run_1"), "RunnerWatch": watchKey("run_1"),
		"Group": groupKey("o", "a/b"), "Member": memberKey("o", Member{Group: "a/b", Kind: MemberRunner, Name: "n"}),
		"Variables": varsKey("o", Scope{Kind: ScopeGroup, Name: "a/b"}), "SharedVariables": varsKey("", Scope{Kind: ScopeRunner, Name: "run_1"}),
		"AuditChain": auditChainKey("o", "org"), "AuditEntry": auditEntryKey("o", "org", 1), "Checkpoint": checkpointKey("o", 1), "Audited": auditedKey("com_1"),
		"Webhook": webhookKey("o", "n"), "Delivery": deliveryKey("whk_1", "evt_1"), "Channel": channelKey("n"), "WarmStep": warmStepKey("run_1", "wrm_1"),
		"User": userKey("o", "eva@example.com"), "UserRef": personKey("h", "o"), "Login": loginKey("h"), "LoginRef": loginRefKey("o", "usr_1", "lgn_1"), "LoginIssuer": loginIssuerKey("n"), "LoginLink": loginLinkKey("h"), "Org": orgKey("o"),
		"ServiceAccount": serviceAccountKey("o", "n"), "Assignment": assignmentKey("sac_1", "run_1"),
	}
	seen := map[string]bool{}
	for _, row := range page.Table(t, "docs/contributing/table-items.md", "item", "partition", "sort key", "read by", "written by") {
		item, k := row[0], engine.Key{Partition: strings.Trim(row[1], "`"), Sort: strings.Trim(row[2], "`")}
		if seen[item] {
			t.Errorf("docs/contributing/table-items.md lists %s twice", item)
		}
		if got, ok := built[item]; !ok || !shape(k.Partition).MatchString(got.Partition) || !shape(k.Sort).MatchString(got.Sort) {
			t.Errorf("docs/contributing/table-items.md lists %s at %s; the store has it at %s", item, k, got)
		}
		seen[item] = true
	}
	for item, k := range built {
		if !seen[item] {
			t.Errorf("docs/contributing/table-items.md does not list %s, at %s", item, k)
		}
	}
	var orders [][]string
	for _, row := range page.Table(t, "docs/contributing/table-items.md", "index", "partition", "sort key", "holds", "serves", "when it lags") {
		orders = append(orders, row[:3])
	}
	want := [][]string{
		{"list", "`" + deploymentsList("{org}") + "`", "`{deployment}`"},
		{"list", "`" + jobsList("{org}") + "`", "`{job}`"},
		{"list", "`" + watchesList + "`", "`{runner}`"},
		{"due", "`" + duePartition + "`", "`{time}#{job}`"},
		{"due", "`" + scheduleDuePartition + "`", "`{time}#{install}#{name}`"},
		{"due", "`" + planDuePartition + "`", "`{time}#{deployment}`"},
	}
	if !slices.EqualFunc(orders, want, slices.Equal) {
		t.Errorf("docs/contributing/table-items.md lists the orders of the indexes as %q; the store has %q", orders, want)
	}
}

func TestWebhooksAreKnownByTheirKeys(t *testing.T) {
	if !IsWebhook(webhookKey("o", "n")) || IsWebhook(deliveryKey("whk_1", "evt_1")) || IsWebhook(runnerKey("o", "n")) {
		t.Error("IsWebhook does not distinguish webhooks from other items")
	}
}

// shape returns a pattern that matches the keys which the documentation describes
// as doc. In doc, a name in braces stands for any text without #.
func shape(doc string) *regexp.Regexp {
	parts := regexp.MustCompile(`\{\w+\}`).Split(doc, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, `[^#]+`) + "$")
}

// TestDueOrderIsTheOrderOfTime checks that the byte order of keys in the Due index
// is the order of their times. This is necessary because the sweep stops at the
// first entry that is not due yet.
func TestDueOrderIsTheOrderOfTime(t *testing.T) {
	at := time.Date(2026, 9, 30, 23, 59, 59, 999e6, time.FixedZone("east", 3600))
	last := ""
	for _, step := range []time.Duration{0, time.Millisecond, time.Second, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		k := dueKey(at.Add(step), "job_1").Sort
		if k <= last {
			t.Errorf("%s comes after %s", last, k)
		}
		last = k
	}
	if dueKey(time.Time{}, "job_1") != nil {
		t.Error("a job that is never due has a key in the Due index")
	}
}
