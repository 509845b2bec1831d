// Package commandline has the command line of each action that the product advises.
// Programs that show advice at a command line use it. The control plane and the
// diagnosis use only actions.
package commandline

import (
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// lines has the command line of each verb, without the program's name. Braces enclose
// an argument. The map is never changed.
var lines = map[fairlead.Verb]string{
	fairlead.VerbAccountCreate:       "service-account create NAME",
	fairlead.VerbAccountDelete:       "service-account delete NAME",
	fairlead.VerbAccountList:         "service-account list",
	fairlead.VerbAccountUpdate:       "service-account update NAME",
	fairlead.VerbRunnerAssign:        "runner assign {runner} SERVICE-ACCOUNT",
	fairlead.VerbRunnerUnassign:      "runner unassign {runner} SERVICE-ACCOUNT",
	fairlead.VerbAgentList:           "runner agent list {runner}",
	fairlead.VerbAppDelete:           "app delete NAME",
	fairlead.VerbAppList:             "app list",
	fairlead.VerbAppLock:             "app lock FOLDER",
	fairlead.VerbAppPublish:          "app apply FOLDER",
	fairlead.VerbAppShow:             "app show NAME",
	fairlead.VerbAppValidate:         "app validate FOLDER",
	fairlead.VerbChannelList:         "runner channel list",
	fairlead.VerbDeploymentApprove:   "deployment approve {deployment} {components}",
	fairlead.VerbDeploymentCancel:    "deployment cancel {deployment}",
	fairlead.VerbDeploymentFollow:    "deployment show {deployment} --follow",
	fairlead.VerbDeploymentList:      "deployment list",
	fairlead.VerbDeploymentRetry:     "deployment retry {deployment}",
	fairlead.VerbDeploymentSign:      "approve {deployment} {component} --key FILE",
	fairlead.VerbDeploymentShow:      "deployment show {deployment}",
	fairlead.VerbGroupCreate:         "group create {group}",
	fairlead.VerbGroupList:           "group list",
	fairlead.VerbInstallAbandon:      "install forget {install} --abandon",
	fairlead.VerbInstallDeploy:       "install deploy {install}",
	fairlead.VerbInstallForget:       "install forget {install}",
	fairlead.VerbInstallList:         "install list",
	fairlead.VerbInstallLoseKey:      "install refresh-runner {install} --accept-key-loss",
	fairlead.VerbInstallLoseState:    "install refresh-runner {install} --accept-state-loss",
	fairlead.VerbInstallMigrateState: "install migrate-state {install}",
	fairlead.VerbInstallMove:         "install refresh-runner {install} --migrate-state",
	fairlead.VerbInstallPlan:         "install deploy {install} --plan-only",
	fairlead.VerbInstallPushState:    "install push-state {install} {component} {file}",
	fairlead.VerbInstallRefresh:      "install refresh-runner {install}",
	fairlead.VerbInstallRefreshTry:   "install refresh-runner {install} --dry-run",
	fairlead.VerbInstallReplaceStack: "install stack {install} --account NUMBER --replace",
	fairlead.VerbInstallSetRunner:    "install update {install} --runner {runner}",
	fairlead.VerbInstallShow:         "install show {install}",
	fairlead.VerbInstallStack:        "install stack {install}",
	fairlead.VerbInstallStackAccount: "install stack {install} --account NUMBER",
	fairlead.VerbInstallTeardown:     "install teardown {install}",
	fairlead.VerbInstallUnlock:       "install unlock {install} {component} --lock-id {lock}",
	fairlead.VerbInstallUnsetRunner:  "install update {install} --runner ''",
	fairlead.VerbInstallUpdate:       "install update {install}",
	fairlead.VerbIssuerSet:           "issuer set NAME",
	fairlead.VerbJobCancel:           "job cancel {job}",
	fairlead.VerbJobList:             "job list",
	fairlead.VerbJobLogs:             "job logs {job}",
	fairlead.VerbJobShow:             "job show {job}",
	fairlead.VerbKeyList:             "keys list",
	fairlead.VerbKeyRevoke:           "keys revoke KEY",
	fairlead.VerbKeyRotateWith:       "keys rotate --sign-with KEY --new-key KEY",
	fairlead.VerbLogin:               "login",
	fairlead.VerbRuleDelete:          "runner rule delete {rule}",
	fairlead.VerbRuleList:            "runner rule list",
	fairlead.VerbRunnerCheck:         "runner check {runner}",
	fairlead.VerbRunnerConfigure:     "runner update {runner} --file FILE",
	fairlead.VerbRunnerEnable:        "runner enable {runner}",
	fairlead.VerbRunnerEnrol:         "runner enrol {runner} --out enrolment-token",
	fairlead.VerbRunnerExplain:       "runner explain {install}",
	fairlead.VerbRunnerList:          "runner list",
	fairlead.VerbRunnerShow:          "runner show {runner}",
	fairlead.VerbTokenCreate:         "token create NAME",
	fairlead.VerbTokenCreateOperator: "token create NAME --operator",
	fairlead.VerbTokenList:           "token list",
	fairlead.VerbTokenRevoke:         "token revoke NAME",
	fairlead.VerbUserInvite:          "user invite EMAIL",
	fairlead.VerbUserList:            "user list",
	fairlead.VerbLimitsShow:          "limits",
	fairlead.VerbUserUpdate:          "user update EMAIL",
	fairlead.VerbWebhookDelete:       "webhook delete NAME",
	fairlead.VerbWebhookDeliveries:   "webhook deliveries NAME",
	fairlead.VerbWebhookList:         "webhook list",
}

// Verbs returns the verbs that have a command, in no order.
func Verbs() []fairlead.Verb { return slices.Collect(maps.Keys(lines)) }

// Of returns the command line of the action, or the verb if it has none. A missing
// argument becomes a placeholder in capitals.
func Of(a fairlead.Action) string {
	line, known := lines[a.Verb]
	if !known {
		return string(a.Verb)
	}
	fields := []string{"fairlead"}
	for _, field := range strings.Fields(line) {
		if name, ok := strings.CutPrefix(field, "{"); ok {
			fields = append(fields, argument(a.Args, strings.TrimSuffix(name, "}"))...)
		} else {
			fields = append(fields, field)
		}
	}
	return strings.Join(fields, " ")
}

// Hint returns the hint of an error with command lines in place of its actions.
func Hint(e *fairlead.Error) string { return Text(e.Hint, fairlead.Actions(e.Hint, e.Args)) }

// argument returns the values of the named argument, or its placeholder in capitals if it has
// none.
func argument(args fairlead.Args, name string) []string {
	var value, missing string
	switch name {
	case "install":
		value, missing = args.Install, "NAME"
	case "runner":
		value, missing = args.Runner, "NAME"
	case "component":
		value, missing = args.Component, "COMPONENT"
	case "components":
		return args.Components
	case "deployment":
		value, missing = args.Deployment, "ID"
	case "job":
		value, missing = args.Job, "ID"
	case "rule":
		value, missing = args.Rule, "RULE"
	case "group":
		value, missing = args.Group, "PATH"
	case "lock":
		value, missing = args.Lock, "LOCK"
	case "file":
		value, missing = args.File, "FILE"
	default:
		panic("commandline: no argument is called " + name)
	}
	if value == "" {
		return []string{missing}
	}
	return []string{quote(value)}
}

// Text returns the text with a command line for each action that it names. A verb
// without a command stays as it is, because a newer control plane may know more verbs.
func Text(text string, actions []fairlead.Action) string {
	return fairlead.Render(text, func(v fairlead.Verb) string {
		if _, known := lines[v]; !known {
			return v.Mention()
		}
		a := fairlead.Action{Verb: v}
		if i := slices.IndexFunc(actions, func(a fairlead.Action) bool { return a.Verb == v }); i >= 0 {
			a = actions[i]
		}
		return "`" + Of(a) + "`"
	})
}

// quote quotes s for a shell, unless a shell reads s as one argument without quotes.
func quote(s string) string {
	plain := s != ""
	for _, r := range s {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:", r))
	}
	if plain && !strings.HasPrefix(s, "-") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
