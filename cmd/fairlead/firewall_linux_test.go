//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/test/e2e"
)

// A runner behind a firewall that drops every inbound connection completes a deployment,
// and no packet of the control plane needs to open a connection to it.
func TestRunnerNeedsNoInboundConnection(t *testing.T) {
	programs := e2e.Build(t)
	firewall := e2e.NewFirewall(t)
	w := e2e.New(t, programs, e2e.Options{Storage: "http", Firewall: firewall})
	i := w.Install("acme", "")
	d := i.Deploy("--auto-approve")
	e2e.Until(t, "the deployment has succeeded", func() bool {
		state := d.Now().State
		if deployment.State(state).Final() && state != string(deployment.Succeeded) {
			t.Fatalf("the deployment is %s", state)
		}
		return state == string(deployment.Succeeded)
	})
	if made := i.Created(); len(made) != 2 {
		t.Errorf("the tool created %+v", made)
	}
	if n := firewall.Dropped(t); n != 0 {
		t.Errorf("the firewall dropped %d packets of a control plane that should open no connection", n)
	}
	// The firewall works: a port that listens inside cannot be reached, and the attempt is counted.
	if err := firewall.DialIn(firewall.ListensInside(t), 300*time.Millisecond); err == nil || firewall.Dropped(t) == 0 {
		t.Errorf("a connection from the outside: %v, and the firewall dropped %d packets", err, firewall.Dropped(t))
	}
}
