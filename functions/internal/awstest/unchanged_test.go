package awstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/program"
)

// unchangedComponents is the number of components of BenchmarkUnchanged.
const unchangedComponents = 30

// BenchmarkUnchanged measures a deployment of 30 components of which none has changed, through the functions of the stack: from its
// creation until a client sees its end. No component may have a job.
func BenchmarkUnchanged(b *testing.B) {
	w := deployWorld(b)
	defer w.close()
	dir := b.TempDir()
	app := strings.Builder{}
	app.WriteString("fairlead: v1\nname: many\ncomponents:\n")
	for i := range unchangedComponents {
		fmt.Fprintf(&app, "  s%02d: {type: script, source: ./none}\n", i)
	}
	w.ok("write the app", errors.Join(os.Mkdir(filepath.Join(dir, "none"), 0o755), os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(app.String()), 0o644)))
	program.Write(b, filepath.Join(dir, "none", "run"), []byte("#!/bin/sh\n"))
	w.cli("app", "apply", dir)
	m, ctx, s := w.measured("many", "acme", map[string]string{"Isolation": "Process"}), b.Context(), samples{}
	defer m.stop()
	d, err := m.CreateDeployment(ctx, m.name, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
	w.ok("deploy", err)
	if d = m.untilDone(ctx, d); d.State != "succeeded" {
		b.Fatalf("the deployment is %s: %s", d.State, d.Message)
	}
	for b.Loop() {
		began := time.Now()
		d, err := m.CreateDeployment(ctx, m.name, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
		w.ok("deploy", err)
		d = m.untilDone(ctx, d)
		s.add("unchanged30", time.Since(began))
		if d.State != "succeeded" || len(d.Components) != unchangedComponents {
			b.Fatalf("the deployment is %s with %d components: %s", d.State, len(d.Components), d.Message)
		}
		for _, c := range d.Components {
			if c.State != "unchanged" || c.PlanJob != "" || c.Job != "" {
				b.Fatalf("component %s is %s with the jobs %q and %q, want unchanged without a job", c.Name, c.State, c.PlanJob, c.Job)
			}
		}
	}
	s.report(b, "FAIRLEAD_BENCH_UNCHANGED", nil)
}
