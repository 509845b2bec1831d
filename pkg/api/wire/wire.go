// Package wire defines the two HTTP APIs: the routes, and the JSON of every request
// and answer. The server's handlers and package client use its types, and the OpenAPI
// documents are generated from them. It imports no other package of this module.
package wire

// Route is one operation of an API. Path uses net/http's pattern syntax.
type Route struct {
	ID     string // operation id: stable, unique, kebab-case
	Method string
	Path   string
}

// HTTP headers of both APIs.
const (
	HeaderRequestID      = "X-Request-Id"    // in every answer; the caller may set it
	HeaderIdempotencyKey = "Idempotency-Key" // in requests that create something
	HeaderProtocol       = "Fairlead-Protocol"
	HeaderSpecFields     = "Fairlead-Spec-Fields" // the optional fields of a job spec that a step knows, separated by commas

	// A body that is too large for one message is staged in parts. The request or answer has no body then,
	// and these headers.
	HeaderBodyDigest = "Fairlead-Body-Digest" // SHA-256 of the whole body, in hex
	HeaderBodySize   = "Fairlead-Body-Size"   // bytes of the whole body

	HeaderAcceptParts = "Fairlead-Accept-Parts" // "1": the client gets the body of an answer in parts if it is too large
)

// Protocol is the version of the runner protocol in this code.
const Protocol = "1"

// DetailJobEnded is a detail in the problems of start-job. "true" means that the
// control plane cannot create a spec, so the job has ended. Its reason is the
// problem's code.
const DetailJobEnded = "job_ended"

// DetailPinnedVersion is a detail in the problem runner-not-taking of a claim: the version
// that the runner's configuration pins, if the agent runs another one.
const DetailPinnedVersion = "pinned_version"

// ProblemType is the prefix of every problem's type; the code follows.
const ProblemType = "urn:fairlead:problem:"

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type      string            `json:"type" doc:"Stable identifier of the kind of problem" example:"urn:fairlead:problem:install-not-found"`
	Title     string            `json:"title" doc:"Kind of error, as text"`
	Status    int               `json:"status" doc:"HTTP status code"`
	Detail    string            `json:"detail,omitempty" doc:"What happened, to what"`
	Hint      string            `json:"hint,omitempty" doc:"What to do next. A verb in braces refers to the action with that verb"`
	Actions   []Action          `json:"actions,omitempty" doc:"The actions that the hint names"`
	RequestID string            `json:"request_id,omitempty" doc:"ID of this request in the server's log"`
	Details   map[string]string `json:"details,omitempty" doc:"Further facts about the error"`
	Errors    []FieldError      `json:"errors,omitempty" doc:"Errors of single fields of the request"`
}

// Action is a verb with arguments that a person can take next. A program can offer
// it as a command or a button.
type Action struct {
	Verb string     `json:"verb" enum:"account.create,account.delete,account.list,account.update,agent.list,app.delete,app.list,app.lock,app.publish,app.show,app.validate,channel.list,deployment.approve,deployment.cancel,deployment.follow,deployment.list,deployment.retry,deployment.show,deployment.sign,group.create,group.list,install.abandon,install.deploy,install.forget,install.list,install.lose-key,install.lose-state,install.migrate-state,install.move,install.plan,install.push-state,install.ready-stack,install.refresh,install.replace-stack,install.set-runner,install.show,install.stack,install.teardown,install.try-refresh,install.unlock,install.unset-runner,install.update,issuer.set,job.cancel,job.list,job.logs,job.show,key.list,key.revoke,key.rotate-with,limits.show,rule.delete,rule.list,runner.assign,runner.check,runner.configure,runner.enable,runner.enrol,runner.explain,runner.list,runner.show,runner.unassign,session.login,token.create,token.create-operator,token.list,token.revoke,user.invite,user.list,user.update,webhook.delete,webhook.deliveries,webhook.list"`
	Args ActionArgs `json:"args" doc:"The known arguments; a person chooses the others"`
}

// ActionArgs are the arguments of an action, by name.
type ActionArgs struct {
	Install    string   `json:"install,omitempty" doc:"Name"`
	Component  string   `json:"component,omitempty" doc:"Name"`
	Components []string `json:"components,omitempty" doc:"Names"`
	Deployment string   `json:"deployment,omitempty" doc:"ID"`
	Job        string   `json:"job,omitempty" doc:"ID"`
	Runner     string   `json:"runner,omitempty" doc:"Name"`
	Rule       string   `json:"rule,omitempty" doc:"ID"`
	Group      string   `json:"group,omitempty" doc:"Path"`
	Lock       string   `json:"lock,omitempty" doc:"ID that the tool gave the lock"`
	File       string   `json:"file,omitempty" doc:"Path"`
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Location string `json:"location,omitempty" doc:"Path of the field in the request"`
	Message  string `json:"message"`
}

// Page is one page of a listing.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Cursor of the next page; absent on the last one"`
}
