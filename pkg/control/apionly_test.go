package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/identity/accesstest"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Only the control plane knows where the log and the state of a job are. An agent that believes wrongly that a job needs no client
// of a cloud starts it in a program that cannot run it.
func TestClaimShowsThatAStepNeedsNoCloud(t *testing.T) {
	for consequence, tt := range map[string]struct {
		storage string
		aws     bool // the control plane gives steps access to its cloud
		want    bool
	}{
		"a state in the control plane needs no cloud":     {"", false, true},
		"a state on the runner's disk needs no cloud":     {"state_storage_configuration={type: local}", false, true},
		"a bucket of S3 is inspected with its client":     {bucketOf("acme-states"), false, false},
		"a bucket of Google Cloud is used by the tool":    {"state_storage_configuration={type: gcs, bucket: acme-states}", false, true},
		"a log in CloudWatch is written with its client":  {"", true, false},
		"neither is known to be the only one that counts": {bucketOf("acme-states"), true, false},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				if tt.aws {
					p.Access = &accesstest.Memory{}
				}
				if tt.storage != "" {
					p.keepsStatesIn("local", tt.storage)
				}
				p.publish(chain)
				p.install("acme")
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
				c, err := p.Claim(p.ctx, p.session, 0)
				if err != nil || c.APIOnly != tt.want {
					t.Errorf("the claim has APIOnly %t, %v", c.APIOnly, err)
				}
			})
		})
	}
}

// A migration reads and writes two storages, of which one may be a bucket.
func TestMigrationMayNeedACloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		p.work()
		p.keepsStatesIn("local", bucketOf("acme-states"))
		p.migrate("acme", "there")
		if c, err := p.Claim(p.ctx, p.session, 0); err != nil || c.Operation != "migrate-state" || c.APIOnly {
			t.Errorf("the claim of the %s has APIOnly %t, %v", c.Operation, c.APIOnly, err)
		}
	})
}
