package commandline_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestActionIsRenderedAsACommand(t *testing.T) {
	for _, tc := range []struct {
		name   string
		action fairlead.Action
		want   string
	}{
		{"with its argument", fairlead.Action{Verb: fairlead.VerbJobLogs, Args: fairlead.Args{Job: "job_1"}}, "fairlead job logs job_1"},
		{"without its argument: the person fills it in", fairlead.Action{Verb: fairlead.VerbJobLogs}, "fairlead job logs ID"},
		{"with several arguments", fairlead.Action{Verb: fairlead.VerbDeploymentApprove, Args: fairlead.Args{Deployment: "dep_1", Components: []string{"db", "web"}}}, "fairlead deployment approve dep_1 db web"},
		{"without optional arguments", fairlead.Action{Verb: fairlead.VerbDeploymentApprove, Args: fairlead.Args{Deployment: "dep_1"}}, "fairlead deployment approve dep_1"},
		{"with arguments that the verb does not take", fairlead.Action{Verb: fairlead.VerbJobList, Args: fairlead.Args{Job: "job_1", Runner: "eu"}}, "fairlead job list"},
		{"an argument with a space stays one argument of the shell", fairlead.Action{Verb: fairlead.VerbInstallPushState, Args: fairlead.Args{Install: "acme", Component: "web", File: "my state"}}, "fairlead install push-state acme web 'my state'"},
		{"a quote cannot end the argument", fairlead.Action{Verb: fairlead.VerbInstallUnlock, Args: fairlead.Args{Install: "acme", Component: "web", Lock: `1'; rm -rf "$HOME`}}, `fairlead install unlock acme web --lock-id '1'\''; rm -rf "$HOME'`},
		{"an argument cannot become a flag", fairlead.Action{Verb: fairlead.VerbRuleDelete, Args: fairlead.Args{Rule: "--yes"}}, "fairlead runner rule delete '--yes'"},
		{"a group's path needs no quotes", fairlead.Action{Verb: fairlead.VerbGroupCreate, Args: fairlead.Args{Group: "customers/acme"}}, "fairlead group create customers/acme"},
		{"an unknown verb stays readable", fairlead.Action{Verb: "page.open"}, "page.open"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := commandline.Of(tc.action); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTextNamesCommands(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		actions    []fairlead.Action
		want       string
	}{
		{"with the action's arguments", "Wait for it ({deployment.show}).", []fairlead.Action{{Verb: fairlead.VerbDeploymentShow, Args: fairlead.Args{Deployment: "dep_1"}}}, "Wait for it (`fairlead deployment show dep_1`)."},
		{"without an action", "See {job.list}.", nil, "See `fairlead job list`."},
		{"a verb of a newer control plane stays as it is", "Use {page.open}.", []fairlead.Action{{Verb: "page.open"}}, "Use {page.open}."},
		{"a reference is not a verb", "${job.list} is a reference.", nil, "${job.list} is a reference."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := commandline.Text(tc.text, tc.actions); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestHintHasTheErrorsArguments(t *testing.T) {
	e := &fairlead.Error{Hint: "{install.show} has the reason.", Args: fairlead.Args{Install: "acme"}}
	if got, want := commandline.Hint(e), "`fairlead install show acme` has the reason."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
