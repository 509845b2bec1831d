package fairlead

import "regexp"

// Verb names something that a person can do: a noun and what is done with it.
// How it is done is a client's business: a command line has a command for each,
// a page may have a button.
type Verb string

// The verbs that advice is made of.
const (
	VerbAgentList           Verb = "agent.list"            // of Runner
	VerbAppList             Verb = "app.list"              //
	VerbAppPublish          Verb = "app.publish"           // from a folder
	VerbAppShow             Verb = "app.show"              //
	VerbAppValidate         Verb = "app.validate"          // in a folder
	VerbChannelList         Verb = "channel.list"          // of runners' versions
	VerbDeploymentApprove   Verb = "deployment.approve"    // Deployment; its Components, or all that wait
	VerbDeploymentCancel    Verb = "deployment.cancel"     // Deployment
	VerbDeploymentFollow    Verb = "deployment.follow"     // Deployment, until it is over
	VerbDeploymentList      Verb = "deployment.list"       //
	VerbDeploymentRetry     Verb = "deployment.retry"      // Deployment
	VerbDeploymentShow      Verb = "deployment.show"       // Deployment
	VerbGroupCreate         Verb = "group.create"          // Group
	VerbGroupList           Verb = "group.list"            //
	VerbInstallAbandon      Verb = "install.abandon"       // Install: forget it, and leave in the cloud what there is
	VerbInstallDeploy       Verb = "install.deploy"        // Install
	VerbInstallList         Verb = "install.list"          //
	VerbInstallLoseState    Verb = "install.lose-state"    // Install: refresh its runner, and leave its state where it is
	VerbInstallMigrateState Verb = "install.migrate-state" // Install: to where its runner keeps states now
	VerbInstallMove         Verb = "install.move"          // Install: refresh its runner, and take its state along
	VerbInstallPlan         Verb = "install.plan"          // Install: plan and change nothing
	VerbInstallPushState    Verb = "install.push-state"    // Install, Component, File
	VerbInstallRefresh      Verb = "install.refresh"       // Install: decide anew which runner serves it
	VerbInstallRefreshTry   Verb = "install.try-refresh"   // Install: show what a refresh would decide
	VerbInstallSetRunner    Verb = "install.set-runner"    // Install, Runner
	VerbInstallShow         Verb = "install.show"          // Install
	VerbInstallStack        Verb = "install.stack"         // Install: print what its runner's stack takes
	VerbInstallStackAccount Verb = "install.ready-stack"   // Install: ready it for a runner's stack in an account
	VerbInstallTeardown     Verb = "install.teardown"      // Install
	VerbInstallUnlock       Verb = "install.unlock"        // Install, Component, Lock
	VerbInstallUpdate       Verb = "install.update"        // Install
	VerbJobCancel           Verb = "job.cancel"            // Job
	VerbJobList             Verb = "job.list"              //
	VerbJobLogs             Verb = "job.logs"              // Job
	VerbJobShow             Verb = "job.show"              // Job
	VerbLogin               Verb = "session.login"         //
	VerbRuleDelete          Verb = "rule.delete"           // Rule
	VerbRuleList            Verb = "rule.list"             //
	VerbRunnerCheck         Verb = "runner.check"          // Runner
	VerbRunnerConfigure     Verb = "runner.configure"      // Runner: by its file
	VerbRunnerEnable        Verb = "runner.enable"         // Runner
	VerbRunnerEnrol         Verb = "runner.enrol"          // Runner: make a token with which an agent enrols
	VerbRunnerExplain       Verb = "runner.explain"        // Install: show which runner serves it, and why
	VerbRunnerList          Verb = "runner.list"           //
	VerbRunnerShow          Verb = "runner.show"           // Runner
	VerbTokenCreate         Verb = "token.create"          //
	VerbTokenCreateOperator Verb = "token.create-operator" //
	VerbTokenList           Verb = "token.list"            //
	VerbTokenRevoke         Verb = "token.revoke"          //
	VerbTrustCreate         Verb = "trust.create"          // of Runner
	VerbTrustDelete         Verb = "trust.delete"          // of Runner
	VerbTrustList           Verb = "trust.list"            // of Runner
	VerbTrustUpdate         Verb = "trust.update"          // of Runner
	VerbWebhookDelete       Verb = "webhook.delete"        //
	VerbWebhookDeliveries   Verb = "webhook.deliveries"    //
	VerbWebhookList         Verb = "webhook.list"          //
)

// Action is something that a person can do about what they read. A text names it
// by its verb in braces: "Wait for it ({deployment.show})."
type Action struct {
	Verb Verb
	Args Args
}

// Args are the arguments of an action, by name. A person fills in those that the
// verb takes and that are empty.
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

// Mention returns the verb as a text names its action.
func (v Verb) Mention() string { return "{" + string(v) + "}" }

// mention is how a text names an action. A reference such as ${inputs.name} is none.
var mention = regexp.MustCompile(`(^|[^$])\{([a-z]+\.[a-z-]+)\}`)

// Actions returns the actions that a text names, each with all of args.
func Actions(text string, args Args) []Action {
	var out []Action
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		out = append(out, Action{Verb: Verb(m[2]), Args: args})
	}
	return out
}
