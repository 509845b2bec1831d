package fairlead

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// Verb names something that a person can do, as a noun and an action on it. Each client renders a
// verb in its own way. The CLI shows a command, and a web page may show a button.
type Verb string

// The verbs that hints and diagnoses use. The comment of a verb first names the arguments (fields
// of Args) that the verb takes, if it takes any.
const (
	VerbAccountCreate       Verb = "account.create"        //
	VerbAccountDelete       Verb = "account.delete"        //
	VerbAccountList         Verb = "account.list"          //
	VerbAccountUpdate       Verb = "account.update"        //
	VerbAgentList           Verb = "agent.list"            // Runner
	VerbAppDelete           Verb = "app.delete"            //
	VerbAppList             Verb = "app.list"              //
	VerbAppLock             Verb = "app.lock"              // write the lock of the images of a closed app
	VerbAppPublish          Verb = "app.publish"           // publish the app of a folder
	VerbAppShow             Verb = "app.show"              //
	VerbAppValidate         Verb = "app.validate"          // validate the app of a folder
	VerbChannelList         Verb = "channel.list"          // list the update channels of runners
	VerbDeploymentApprove   Verb = "deployment.approve"    // Deployment, Components: without Components, all plans that await approval
	VerbDeploymentCancel    Verb = "deployment.cancel"     // Deployment
	VerbDeploymentFollow    Verb = "deployment.follow"     // Deployment: show its progress until it has ended
	VerbDeploymentList      Verb = "deployment.list"       //
	VerbDeploymentRetry     Verb = "deployment.retry"      // Deployment
	VerbDeploymentSign      Verb = "deployment.sign"       // Deployment, Component: approve its plan with a key of the customer
	VerbDeploymentShow      Verb = "deployment.show"       // Deployment
	VerbGroupCreate         Verb = "group.create"          // Group
	VerbGroupList           Verb = "group.list"            //
	VerbInstallAbandon      Verb = "install.abandon"       // Install: forget it without destroying its resources in the cloud
	VerbInstallDeploy       Verb = "install.deploy"        // Install
	VerbInstallForget       Verb = "install.forget"        // Install: delete its records
	VerbInstallList         Verb = "install.list"          //
	VerbInstallLoseKey      Verb = "install.lose-key"      // Install: refresh its runner and give up what only the old runner can decrypt
	VerbInstallLoseState    Verb = "install.lose-state"    // Install: refresh its runner and leave its state behind
	VerbInstallMigrateState Verb = "install.migrate-state" // Install: copy its state to the storage that its runner uses now
	VerbInstallMove         Verb = "install.move"          // Install: refresh its runner and copy its state to the new storage
	VerbInstallPlan         Verb = "install.plan"          // Install: plan and change nothing
	VerbInstallPushState    Verb = "install.push-state"    // Install, Component, File
	VerbInstallRefresh      Verb = "install.refresh"       // Install: decide again which runner serves it
	VerbInstallRefreshTry   Verb = "install.try-refresh"   // Install: show what a refresh would decide
	VerbInstallReplaceStack Verb = "install.replace-stack" // Install: prepare it for a new stack, and refuse the runner of the current stack
	VerbInstallSetRunner    Verb = "install.set-runner"    // Install, Runner
	VerbInstallShow         Verb = "install.show"          // Install
	VerbInstallStack        Verb = "install.stack"         // Install: print the parameters of its runner's stack
	VerbInstallStackAccount Verb = "install.ready-stack"   // Install: prepare it for a runner's stack in an account
	VerbInstallTeardown     Verb = "install.teardown"      // Install
	VerbInstallUnlock       Verb = "install.unlock"        // Install, Component, Lock
	VerbInstallUnsetRunner  Verb = "install.unset-runner"  // Install: let the rules decide which runner serves it
	VerbInstallUpdate       Verb = "install.update"        // Install
	VerbIssuerSet           Verb = "issuer.set"            //
	VerbJobCancel           Verb = "job.cancel"            // Job
	VerbJobList             Verb = "job.list"              //
	VerbJobLogs             Verb = "job.logs"              // Job
	VerbJobShow             Verb = "job.show"              // Job
	VerbLogin               Verb = "session.login"         //
	VerbKeyList             Verb = "key.list"              // list the keys that runners trust
	VerbKeyRevoke           Verb = "key.revoke"            //
	VerbKeyRotateWith       Verb = "key.rotate-with"       // rotate the keys with a spare key that the control plane does not have
	VerbLimitsShow          Verb = "limits.show"           //
	VerbRuleDelete          Verb = "rule.delete"           // Rule
	VerbRuleList            Verb = "rule.list"             //
	VerbRunnerAssign        Verb = "runner.assign"         // Runner: let its agents open sessions as a service account
	VerbRunnerCheck         Verb = "runner.check"          // Runner
	VerbRunnerConfigure     Verb = "runner.configure"      // Runner: set its configuration from a file
	VerbRunnerEnable        Verb = "runner.enable"         // Runner
	VerbRunnerEnrol         Verb = "runner.enrol"          // Runner: create a token with which an agent enrols
	VerbRunnerExplain       Verb = "runner.explain"        // Install: show which runner serves it, and why
	VerbRunnerList          Verb = "runner.list"           //
	VerbRunnerShow          Verb = "runner.show"           // Runner
	VerbRunnerUnassign      Verb = "runner.unassign"       // Runner: take a service account from it
	VerbTokenCreate         Verb = "token.create"          //
	VerbTokenCreateOperator Verb = "token.create-operator" //
	VerbTokenList           Verb = "token.list"            //
	VerbTokenRevoke         Verb = "token.revoke"          //
	VerbUserInvite          Verb = "user.invite"           //
	VerbUserList            Verb = "user.list"             //
	VerbUserUpdate          Verb = "user.update"           //
	VerbWebhookDelete       Verb = "webhook.delete"        //
	VerbWebhookDeliveries   Verb = "webhook.deliveries"    //
	VerbWebhookList         Verb = "webhook.list"          //
)

// Action is something that a person can do next. A text names an action by its verb in braces:
// "Wait for it ({deployment.show})."
type Action struct {
	Verb Verb
	Args Args
}

// Args are the arguments of an action, by name. If an argument that the verb takes is empty, the
// person must add it.
type Args struct {
	Install    string   // name
	Component  string   // name
	Components []string // names
	Deployment string   // id
	Job        string   // id
	Runner     string   // name
	Rule       string   // id
	Group      string   // path
	Lock       string   // the tool's own id
	File       string   // path
}

// Mention returns the verb in braces, as a text names it.
func (v Verb) Mention() string { return "{" + string(v) + "}" }

// mention matches an action in a text. It does not match a reference such as ${inputs.name}.
var mention = pattern.New(`(^|[^$])\{([a-z]+\.[a-z-]+)\}`)

// Actions returns an action for each verb that the text names. All actions get the same args.
func Actions(text string, args Args) []Action {
	var out []Action
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		out = append(out, Action{Verb: Verb(m[2]), Args: args})
	}
	return out
}

// Render returns a copy of text. In the copy, the result of render replaces each verb that text
// names.
func Render(text string, render func(Verb) string) string {
	return mention.ReplaceAllStringFunc(text, func(m string) string {
		before, verb, _ := strings.Cut(strings.TrimSuffix(m, "}"), "{")
		return before + render(Verb(verb))
	})
}
