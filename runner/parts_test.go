package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

// largeModule has a state and a plan of about 100 KB each, which do not compress.
const largeModule = `
variable "name" { type = string }
variable "password" {
  type      = string
  sensitive = true
}
resource "terraform_data" "large" {
  input = { for i in range(700) : tostring(i) => sha512("${var.name}-${i}") }
}
output "one" { value = terraform_data.large.output["1"] }
output "password" {
  value     = var.password
  sensitive = true
}
`

// The front end of this control plane accepts 16 KB. States and plans are larger, so they travel in parts.
func TestLargeStatesAndPlansGoInParts(t *testing.T) {
	t.Parallel()
	for tool, path := range tofu.Tools(t) {
		t.Run(tool, func(t *testing.T) {
			s := plane.New(t, plane.Options{MaxBody: 16 << 10})
			a := startAgent(t, s, "", "FAIRLEAD_TOFU="+path)
			ref := s.Push(map[string]string{"main.tf": largeModule})

			plan := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
			sent := s.Asked(wire.StagePart)
			if sent < 2 || s.Asked(wire.PutPlan) == 0 {
				t.Errorf("the plan went in %d parts", sent)
			}
			apply := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
			if got := s.Asked(wire.GetPart); got < sent {
				t.Errorf("the plan came in %d parts, it was sent in %d", got, sent)
			}
			if n := s.Asked(wire.StagePart) - sent; n < 6 || len(apply.Finish.Outputs) != 2 {
				t.Errorf("the state went in %d parts; the outputs are %v", n, apply.Finish.Outputs)
			}
			got := s.Asked(wire.GetPart)
			again := succeeded(t, s.UntilFinished(s.Queue(planSpec("http", ref))))
			if n := s.Asked(wire.GetPart) - got; !again.Finish.Plan.NoOp || n < 6 {
				t.Errorf("the next plan read the state in %d parts and found %+v", n, again.Finish.Plan)
			}
			s.Until("nothing left on disk", a.empty)
			noSecretsOnDisk(t, a.Data, "http")

			// No job can name a part any more. The first call finds the parts, the second deletes them.
			unnamed, err := s.Control.CollectBlobs(t.Context(), nil)
			if err == nil {
				_, err = s.Control.CollectBlobs(t.Context(), unnamed)
			}
			keys, lerr := s.Control.Blobs.List(t.Context(), "")
			if err != nil || lerr != nil || len(keys) == 0 || strings.Contains(strings.Join(keys, " "), "staged/") {
				t.Errorf("the blobs %s remain: %v, %v", keys, err, lerr)
			}
		})
	}
}
