package main_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/alltypes"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var moments = []alltypes.Moment{alltypes.AtTheStart, alltypes.InTheMiddle, alltypes.AtTheEnd, alltypes.AfterTheReport}

// A target is a program that a test kills.
type target struct {
	name string
	// without names the folders of the control plane in which a kill can leave files for some time.
	without []string
	kill    func(*typesWorld, wire.Job)
	// drop reports whether the connection of the request ends with the program. Otherwise the request goes on after the program
	// has been started again.
	drop bool
}

var targets = []target{
	{"step", nil, func(w *typesWorld, j wire.Job) { w.KillStep(j) }, true},
	{"agent", nil, func(w *typesWorld, _ wire.Job) { w.Agent.Kill(); w.StartAgent() }, false},
	// What it wrote before a commit that it did not reach is collected after an hour.
	{"control plane", []string{"blobs"}, func(w *typesWorld, _ wire.Job) { w.Server.Kill(); w.StartServer() }, false},
}

// sparedOperations returns three of four operations in a short run, and none in a whole run. The day chooses them.
func sparedOperations(t *testing.T, s *alltypes.Story) map[string]bool {
	spared, n := map[string]bool{}, 0
	for _, phase := range []string{"create", "change", "run", "teardown"} {
		for _, name := range s.Operations(phase) {
			spared[name] = !slices.Contains(shortrun.OneOf(t, n, true, false, false, false), true)
			n++
		}
	}
	return spared
}

// TestStoryOfAllTypesSurvivesKills kills a program at a moment of each job in the story of an install, once for each operation on
// each component. The person follows the offered commands. The story ends as it does without a kill, and nothing is left. A short
// run has one of the cases, kills in each fourth operation, and has the next case when it runs again.
func TestStoryOfAllTypesSurvivesKills(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	server := newTypesCluster(t)
	type testCase struct {
		alltypes.Moment
		target
	}
	var cases []testCase
	for _, v := range targets {
		for _, m := range moments {
			cases = append(cases, testCase{m, v})
		}
	}
	for _, tc := range shortrun.OneOf(t, 0, cases...) {
		t.Run(tc.target.name+" "+tc.Moment.Name, func(t *testing.T) {
			w := newTypesWorld(t, server)
			w.Create()
			k := alltypes.Killer{At: tc.Moment, Kill: func(j wire.Job) { tc.kill(w, j) }, Drop: tc.drop, Spared: sparedOperations(t, w.Story)}
			k.Join(w.Story, w.Proxy.Proxy)
			did := w.Run()
			w.checkNothingLeft(t, tc.without...)
			if want := len(w.Approvals()); tc.target.name != "step" && (len(did["create"]) != want || len(did["change"]) != want || len(did["run"]) > 0 || len(did["teardown"]) != want) {
				t.Errorf("the person ran %q, want as many approvals as without a kill, because no job is lost", did)
			}
			t.Logf("the person ran %v", did)
		})
	}
}
