package account_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/soak/account"
)

const ledger = `tool plan p1-1 key
tool apply a1-1 key
create r1 shop/web terraform_data.a a1-1
printed r1 3 a1-1
tool plan p2-1 key
tool apply a2-2 key
destroy r1 shop/web terraform_data.a a2-2
create r2 shop/web terraform_data.a a2-2
printed r2 3 a2-2
`

func logOf(id string, lines int) []byte {
	var b strings.Builder
	b.WriteString("Applying\n")
	for n := 1; n <= lines; n++ {
		fmt.Fprintf(&b, "terraform_data.a (local-exec): %s\n", account.Line(id, n))
	}
	return []byte(b.String())
}

// complete returns evidence without differences. A component was deployed twice, the second time
// in the second attempt of its apply, because the first was claimed and never started.
func complete(t *testing.T) *account.Evidence {
	t.Helper()
	records, err := account.Read(strings.NewReader(ledger))
	if err != nil {
		t.Fatal(err)
	}
	log := func(epoch int64, text []byte) []account.Log {
		return []account.Log{{Epoch: epoch, Size: int64(len(text)), Ended: true, Text: text}}
	}
	return &account.Evidence{
		Accepted:    []string{"d1", "d2"},
		Deployments: []account.Deployment{{ID: "d1", State: "succeeded"}, {ID: "d2", State: "succeeded"}},
		Jobs: []account.Job{
			{ID: "p1", Operation: "plan", State: "succeeded", Deployment: "d1", Owner: "shop/web", Epoch: 1, Logs: log(1, nil)},
			{ID: "a1", Operation: "apply", State: "succeeded", Deployment: "d1", Owner: "shop/web", Epoch: 1, Logs: log(1, logOf("r1", 3))},
			{ID: "p2", Operation: "plan", State: "succeeded", Deployment: "d2", Owner: "shop/web", Epoch: 1, Logs: log(1, nil)},
			{ID: "a2", Operation: "apply", State: "succeeded", Deployment: "d2", Owner: "shop/web", Epoch: 2, Logs: log(2, logOf("r2", 3))},
		},
		States: map[string][]account.Resource{"shop/web": {{ID: "r2"}}},
		Wanted: []string{"shop/web"},
		Ledger: records,
	}
}

func TestCompleteEvidenceHasNoFindings(t *testing.T) {
	if got := account.Check(*complete(t)); len(got.Findings) > 0 || len(got.Announced) > 0 {
		t.Errorf("findings %v, announced %v", got.Findings, got.Announced)
	}
}

// A tool that reads slowly prints a line in two pieces.
func TestLineInTwoPiecesIsComplete(t *testing.T) {
	e := complete(t)
	setLog(e, []byte(strings.Replace(string(logOf("r2", 3)), "r2-line-0002", "r2-li\nterraform_data.a (local-exec): ne-0002", 1)))
	if got := account.Check(*e); len(got.Findings) > 0 {
		t.Errorf("findings %v", got.Findings)
	}
}

// Each row adds one difference. Check must find it with the rule. If the row has no rule, the
// difference is announced, and Check must count it instead.
func TestDifferencesAreFoundOrAnnounced(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(*account.Evidence)
		rule  string
	}{
		"a deployment that does not end": {func(e *account.Evidence) { e.Deployments[1].State = "running" }, account.RuleEnds},
		"a plan that waits without end":  {func(e *account.Evidence) { e.Deployments[1].State = "awaiting-approval" }, account.RuleEnds},
		"a job that does not end":        {func(e *account.Evidence) { e.Jobs[2].State = "queued" }, account.RuleEnds},
		"a deployment that was confirmed, but does not exist": {func(e *account.Evidence) {
			e.Deployments = e.Deployments[:1]
		}, account.RuleEnds},

		"a resource of a successful apply is not in the state": {func(e *account.Evidence) {
			e.States["shop/web"] = nil
		}, account.RuleState},
		"a resource of a failed apply whose tool ended normally is not in the state": {func(e *account.Evidence) {
			e.States["shop/web"], e.Jobs[3].State, e.Jobs[3].Reason = nil, "failed", "tool-failed"
		}, account.RuleState},
		"a resource of a lost apply is not in the state": {func(e *account.Evidence) {
			e.States["shop/web"], e.Jobs[3].State, e.Jobs[3].Reason = nil, "lost", "step-killed"
		}, ""},
		"a resource of a killed tool is not in the state": {func(e *account.Evidence) {
			e.States["shop/web"], e.Jobs[3].State, e.Jobs[3].Reason = nil, "failed", "tool-killed"
		}, ""},
		"a resource of an apply whose state was not saved": {func(e *account.Evidence) {
			e.States["shop/web"], e.Jobs[3].State, e.Jobs[3].Reason = nil, "failed", "state-unsaved"
		}, ""},
		"an old state replaced the new one": {func(e *account.Evidence) {
			e.States["shop/web"] = []account.Resource{{ID: "r1"}, {ID: "r2"}}
		}, account.RuleState},
		"a removal whose step was killed is not in the state yet": {func(e *account.Evidence) {
			e.States["shop/web"], e.Jobs[3].State, e.Jobs[3].Reason = []account.Resource{{ID: "r1"}, {ID: "r2"}}, "lost", "step-killed"
		}, ""},
		"a state lists a resource that no tool created": {func(e *account.Evidence) {
			e.States["shop/web"] = append(e.States["shop/web"], account.Resource{ID: "r9"})
		}, account.RuleNoPhantom},
		"a state lists a tainted resource whose creation did not end": {func(e *account.Evidence) {
			e.States["shop/web"] = append(e.States["shop/web"], account.Resource{ID: "r9", Tainted: true})
		}, ""},
		"a state lists another component's resource": {func(e *account.Evidence) {
			e.States = map[string][]account.Resource{"shop/web": {}, "shop/db": {{ID: "r2"}}}
		}, account.RuleState},
		"a state was not read": {func(e *account.Evidence) { e.Wanted = append(e.Wanted, "shop/db") }, account.RuleState},

		"an apply ran in two attempts": {func(e *account.Evidence) {
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Tool, Verb: "apply", Attempt: "a2-1", Key: "key"})
		}, account.RuleOnce},
		"one attempt started its apply twice": {func(e *account.Evidence) {
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Tool, Verb: "apply", Attempt: "a2-2", Key: "key"})
		}, account.RuleOnce},
		"an apply without its own plan": {func(e *account.Evidence) {
			e.Jobs = append(e.Jobs, account.Job{ID: "a3", Operation: "apply", State: "succeeded", Deployment: "d2", Owner: "shop/web", Epoch: 1})
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Tool, Verb: "apply", Attempt: "a3-1", Key: "key"})
		}, account.RuleOnce},
		"an apply after a plan that failed": {func(e *account.Evidence) { e.Jobs[2].State = "failed" }, account.RuleOnce},
		"an apply whose plan came after it": {func(e *account.Evidence) { e.Ledger[0], e.Ledger[1] = e.Ledger[1], e.Ledger[0] }, account.RuleOnce},
		"an apply created a resource twice": {func(e *account.Evidence) {
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Create, ID: "r3", Owner: "shop/web", Address: "terraform_data.a", Attempt: "a2-2"})
			e.States["shop/web"] = append(e.States["shop/web"], account.Resource{ID: "r3"})
		}, account.RuleOnce},
		"a plan created a resource": {func(e *account.Evidence) {
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Create, ID: "r3", Owner: "shop/web", Address: "terraform_data.b", Attempt: "p2-1"})
			e.States["shop/web"] = append(e.States["shop/web"], account.Resource{ID: "r3"})
		}, account.RuleOnce},
		"a tool ran for an unknown job": {func(e *account.Evidence) {
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Tool, Verb: "plan", Attempt: "x-1", Key: "key"})
		}, account.RuleKnownJob},

		"two tools at once": {func(e *account.Evidence) {
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Overlap, Verb: "apply", Attempt: "a2-2", Key: "key", Holder: "a1-1"})
		}, account.RuleAlone},
		"two tools at once after a killed step, whose tool should have ended": {func(e *account.Evidence) {
			e.Jobs[1].State, e.Jobs[1].Reason = "lost", "step-killed"
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Overlap, Verb: "apply", Attempt: "a2-2", Key: "key", Holder: "a1-1"})
		}, account.RuleAlone},
		"two tools at once after a lease expired": {func(e *account.Evidence) {
			e.Jobs[1].State, e.Jobs[1].Reason = "lost", "lease-expired"
			e.Ledger = append(e.Ledger, account.Record{Kind: account.Overlap, Verb: "apply", Attempt: "a2-2", Key: "key", Holder: "a1-1"})
		}, ""},

		"a log lacks a line":             {func(e *account.Evidence) { setLog(e, without(logOf("r2", 3), "0002")) }, account.RuleLog},
		"a log lacks its end":            {func(e *account.Evidence) { setLog(e, logOf("r2", 2)) }, account.RuleLog},
		"a log has a line twice":         {func(e *account.Evidence) { setLog(e, append(logOf("r2", 3), logOf("r2", 1)...)) }, account.RuleLog},
		"a log is of another resource":   {func(e *account.Evidence) { setLog(e, logOf("r1", 3)) }, account.RuleLog},
		"a log is missing":               {func(e *account.Evidence) { e.Jobs[3].Logs = nil }, account.RuleLog},
		"a log has not ended":            {func(e *account.Evidence) { e.Jobs[0].Logs[0].Ended = false }, account.RuleLog},
		"a log is shorter than its size": {func(e *account.Evidence) { e.Jobs[3].Logs[0].Size++ }, account.RuleLog},
		"a log lacks a part of a line": {func(e *account.Evidence) {
			setLog(e, []byte(strings.Replace(string(logOf("r2", 3)), "r2-line-0002", "r2-li-0002", 1)))
		}, account.RuleLog},
		"a log lacks a line and is marked truncated": {func(e *account.Evidence) {
			setLog(e, without(logOf("r2", 3), "0002"))
			e.Jobs[3].Logs[0].Truncated = true
		}, ""},

		"a lock remains": {func(e *account.Evidence) { e.Left = []string{"lock of shop/web, by a1"} }, account.RuleClean},
	} {
		t.Run(name, func(t *testing.T) {
			e := complete(t)
			tc.plant(e)
			got := account.Check(*e)
			switch {
			case tc.rule == "" && (len(got.Findings) > 0 || len(got.Announced) == 0):
				t.Errorf("findings %v, announced %v; want no finding and an announced difference", got.Findings, got.Announced)
			case tc.rule != "" && !slices.ContainsFunc(got.Findings, func(f account.Finding) bool { return f.Rule == tc.rule }):
				t.Errorf("findings %v; want one with the rule %q", got.Findings, tc.rule)
			}
		})
	}
}

func setLog(e *account.Evidence, text []byte) {
	e.Jobs[3].Logs[0].Text, e.Jobs[3].Logs[0].Size = text, int64(len(text))
}

func without(text []byte, part string) []byte {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, part) {
			b.WriteString(line)
		}
	}
	return []byte(b.String())
}

func TestInvalidLedgerIsAnError(t *testing.T) {
	for _, text := range []string{"made r1\n", "create r1 shop/web\n", "printed r1 many a1-1\n", "\n", "tool apply a1-1 key more\n"} {
		if got, err := account.Read(strings.NewReader(ledger + text)); err == nil {
			t.Errorf("%q was read as %+v", text, got[len(got)-1])
		}
	}
}
