package awsaction_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/awsaction"
)

// An operation has the actions that its own list has; an operation without a list has all.
func TestOperationsMissWhatTheirRolesLack(t *testing.T) {
	all := awsaction.Grants{All: []string{"lambda:*", "rds:*"}}
	narrow := awsaction.Grants{All: all.All, Of: map[string][]string{awsaction.Deploy: {"lambda:*"}}}
	for name, test := range map[string]struct {
		wanted, granted awsaction.Grants
		want            string
	}{
		"nothing is declared":                      {awsaction.Grants{}, all, "[]"},
		"the same":                                 {narrow, narrow, "[]"},
		"the stack limits no operation":            {narrow, all, "[]"},
		"the app needs more for one operation":     {all, narrow, "[rds:* for deploy]"},
		"what no operation has is named once":      {awsaction.Grants{All: []string{"s3:*"}}, narrow, "[s3:*]"},
		"one operation has more than the stack":    {awsaction.Grants{All: all.All, Of: map[string][]string{awsaction.Provision: {"rds:*"}, awsaction.Deploy: {"rds:Describe*"}}}, narrow, "[rds:Describe* for deploy]"},
		"a narrower pattern of what is granted":    {awsaction.Grants{All: []string{"lambda:Get*"}}, narrow, "[]"},
		"the stack has more for another operation": {awsaction.Grants{All: all.All, Of: map[string][]string{awsaction.Deploy: {"lambda:Get*"}}}, narrow, "[]"},
	} {
		if got := test.wanted.Missing(test.granted); fmt.Sprint(got) != test.want {
			t.Errorf("%s: %q, want %s", name, got, test.want)
		}
	}
}

func TestMergedGrantsKeepEachOperation(t *testing.T) {
	narrow := awsaction.Grants{All: []string{"lambda:*", "rds:*"}, Of: map[string][]string{awsaction.Provision: {"lambda:*", "rds:*"}, awsaction.Deploy: {"lambda:*"}, awsaction.Deprovision: {"rds:*"}}}
	got := narrow.Merge(awsaction.Grants{All: []string{"s3:*"}})
	if want := "{[lambda:* rds:* s3:*] map[deploy:[lambda:* s3:*] deprovision:[rds:* s3:*] provision:[lambda:* rds:* s3:*]]}"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if plain := (awsaction.Grants{All: []string{"a:*"}}).Merge(awsaction.Grants{All: []string{"b:*"}}); plain.Of != nil {
		t.Errorf("no operation has a list, got %v", plain)
	}
}

// Customers read what a job of one operation may use, if it is less than the app.
func TestSentencesNameEachOperation(t *testing.T) {
	g := awsaction.Grants{All: []string{"lambda:*", "rds:Delete*", "s3:*"},
		Of: map[string][]string{awsaction.Provision: {"lambda:*", "rds:Delete*", "s3:*"}, awsaction.Deploy: {"lambda:*"}, awsaction.Deprovision: {"rds:Delete*", "s3:*"}}}
	want := []string{"The app may use: Amazon S3, AWS Lambda.", "Of Amazon RDS it may use only: rds:Delete*.",
		"A job that deploys in another way, such as a script, may use only: AWS Lambda.", "A job that removes infrastructure may use only: rds:Delete*, Amazon S3."}
	if got := g.Sentences(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
