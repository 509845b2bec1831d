package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
)

// A runner whose jobs are processes starts the jobs of one install. The agent decides, so a hostile control plane cannot add a second.
func TestSecondInstallIsRefused(t *testing.T) {
	acme := wire.Claim{InstallID: "ins_1", Install: "acme", Operation: "plan"}
	other := wire.Claim{InstallID: "ins_2", Install: "globex", Operation: "apply"}
	oldAcme := wire.Claim{Install: "acme", Operation: "plan"} // of a control plane that names no IDs
	for consequence, tt := range map[string]struct {
		file    string // content of the file; "": a new data folder
		used    bool   // an earlier version used the data folder
		place   executor.Place
		shared  bool
		claims  []wire.Claim
		refused int // index of the refused claim; -1: none
	}{
		"the second install is refused":                          {place: executor.Place{Machine: true}, claims: []wire.Claim{acme, acme, other}, refused: 2},
		"also after the agent was replaced":                      {file: `{"id":"ins_1","name":"acme"}`, place: executor.Place{Machine: true}, claims: []wire.Claim{other}, refused: 0},
		"an install of the same name is another one":             {file: `{"id":"ins_9","name":"acme"}`, place: executor.Place{Machine: true}, claims: []wire.Claim{acme}, refused: 0},
		"a renamed install is the same":                          {file: `{"id":"ins_1","name":"old"}`, place: executor.Place{Machine: true}, claims: []wire.Claim{acme}, refused: -1},
		"an older control plane names no IDs":                    {place: executor.Place{Machine: true}, claims: []wire.Claim{oldAcme, acme, oldAcme, other}, refused: 3},
		"the operator may share the machine":                     {place: executor.Place{Machine: true}, shared: true, claims: []wire.Claim{acme, other}, refused: -1},
		"a container for each job is no shared machine":          {place: executor.Place{}, claims: []wire.Claim{acme, other}, refused: -1},
		"an updated runner serves what it served":                {used: true, place: executor.Place{Machine: true}, claims: []wire.Claim{acme, other}, refused: -1},
		"the operator ends that":                                 {file: `{}`, used: true, place: executor.Place{Machine: true}, claims: []wire.Claim{acme, other}, refused: 1},
		"an unreadable record refuses":                           {file: `{"id":`, place: executor.Place{Machine: true}, claims: []wire.Claim{acme}, refused: 0},
		"a job of the runner itself has no install":              {file: `{"id":"ins_1","name":"acme"}`, place: executor.Place{Machine: true}, claims: []wire.Claim{{Operation: "check"}, {Operation: "build"}}, refused: -1},
		"a job that hides its install is refused":                {file: `{"id":"ins_1","name":"acme"}`, place: executor.Place{Machine: true}, claims: []wire.Claim{{Operation: "apply"}}, refused: 0},
		"a name without the ID of another install is refused":    {file: `{"id":"ins_1","name":"acme"}`, place: executor.Place{Machine: true}, claims: []wire.Claim{{Install: "globex", Operation: "plan"}}, refused: 0},
		"the first install of an updated, restarted agent stays": {file: `{"any":true}`, place: executor.Place{Machine: true}, claims: []wire.Claim{other, acme}, refused: -1},
	} {
		t.Run(consequence, func(t *testing.T) {
			data := t.TempDir()
			if tt.used {
				write(t, filepath.Join(data, identityFile), "{}")
			}
			if tt.file != "" {
				write(t, filepath.Join(data, installFile), tt.file)
			}
			a := &Agent{cfg: config.Runner{Data: data, SharedProcess: map[bool]string{true: sharedYes}[tt.shared]}}
			if err := keepUpgraded(data); err != nil && tt.file != `{"id":` {
				t.Fatal(err)
			}
			by := &launcher{place: tt.place}
			for i, c := range tt.claims {
				err := a.admit(t.Context(), by, c)
				if refused := err != nil; refused != (i == tt.refused) {
					t.Errorf("claim %d: %v", i, err)
				}
				if l, ok := errors.AsType[*executor.LaunchError](err); err != nil && (!ok || l.Cause != fairlead.CauseInstallRefused) {
					t.Errorf("claim %d is refused without the cause: %v", i, err)
				}
				if c == other && i == tt.refused && (!strings.Contains(err.Error(), "FAIRLEAD_SHARED_PROCESS") || !strings.Contains(err.Error(), "globex")) {
					t.Errorf("the refusal does not tell what to do: %v", err)
				}
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
