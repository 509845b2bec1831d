package awstest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/hosts"
)

// listenOnEventBus makes a rule of the customer's account, which gets the settings of each task before its container starts. It
// sends the token in them to the control plane, as an app could whose roles may use events. The control plane must
// refuse it, because the caller has no role of a step. The result counts the attempts.
func (w *world) listenOnEventBus() *atomic.Int64 {
	tried := &atomic.Int64{}
	w.tasks.Event = func(env []string) {
		found := map[string]string{}
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			found[name] = value
		}
		var in struct {
			Job  string               `json:"job"`
			Warm *struct{ ID string } `json:"warm"`
		}
		if err := json.Unmarshal([]byte(found["FAIRLEAD_STEP_INPUT"]), &in); err != nil || found["FAIRLEAD_LAUNCH_TOKEN"] == "" {
			w.t.Errorf("the settings of a task have no input or no launch token: %v", err)
			return
		}
		thief, err := client.New("https://"+planeHost, found["FAIRLEAD_LAUNCH_TOKEN"], client.Options{HTTP: &http.Client{Transport: hosts.Transport(w.t, w.authority, w.proxy)}})
		if err != nil {
			w.t.Error(err)
			return
		}
		tried.Add(1)
		const step = "the-step-of-a-thief"
		what := "job " + in.Job
		if in.Warm != nil {
			what = "warm step " + in.Warm.ID
			_, err = thief.AwaitJob(w.t.Context(), in.Warm.ID, step, nil, 0)
		} else {
			_, err = thief.Start(w.t.Context(), in.Job, wire.StartRequest{StepID: step})
		}
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code() != string(fairlead.CodeStepRoleUnproven) {
			w.t.Errorf("a token from the event bus serves for %s without the role of its step: %v", what, err)
		}
	}
	return tried
}
