package diagnosis_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// notOfFailedJobs are the reasons that a failed job cannot have. They are the reasons of
// canceled jobs, of single attempts, and of components for which no job was created.
var notOfFailedJobs = map[fairlead.Reason]bool{
	fairlead.ReasonCanceled: true, fairlead.ReasonLeaseExpired: true, fairlead.ReasonStepDied: true,
	fairlead.ReasonNeedsOutputs: true, fairlead.ReasonNeedsFailed: true, fairlead.ReasonVarsTooLarge: true,
}

// TestEveryReasonHasAdvice checks each reason of pkg/fairlead that a failed job can have.
// Its situation must give advice, and a command that only shows the job's log is not
// enough.
func TestEveryReasonHasAdvice(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../fairlead/reason.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		v, ok := node.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		typ, ok := v.Type.(*ast.Ident)
		lit, isLit := v.Values[0].(*ast.BasicLit)
		if !ok || !isLit || typ.Name != "Reason" {
			return true
		}
		text, _ := strconv.Unquote(lit.Value)
		reason := fairlead.Reason(text)
		if notOfFailedJobs[reason] {
			return true
		}
		n++
		failed := job.Job{ID: "job_1", Operation: job.OpApply, Plugin: "terraform", Component: "db", State: job.Failed, Reason: reason, Attempts: 1}
		failed.Lease.Epoch = 1
		all := diagnosis.OfJob(diagnosis.Job{Job: failed, Install: "acme"}, time.Unix(0, 0))
		if len(all) != 1 {
			t.Errorf("%s: %d situations", v.Names[0].Name, len(all))
			return true
		}
		advised := len(all[0].Known) > 0
		for _, step := range all[0].Next {
			advised = advised || step.Action.Verb == ""
		}
		if !advised {
			t.Errorf("%s has no advice. The text is\n%s", v.Names[0].Name, page(all))
		}
		return true
	})
	if n < 40 {
		t.Errorf("only %d reasons were found", n)
	}
}
