// Package awssession gives runners short-lived credentials of the account in
// which the control plane is: those of one role for all of them, each time
// under a session policy for exactly one runner's queue, or for exactly one
// attempt's log and artifacts. A role for each install would meet IAM's ceiling.
//
// The role's own policy is written in terms of the session's tags, so that a
// runner is kept from another's queue twice, and by different means.
package awssession

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// Tags of a session.
const (
	TagRunner  = "fairlead-runner"
	TagInstall = "fairlead-install"
	TagApp     = "fairlead-app"
)

// MaxPolicy is the longest session policy, in characters (AssumeRole, Policy).
// STS also packs policy and tags into a form whose size is no more than told
// in per cent; a policy of this shape is a third of what fits.
const MaxPolicy = 2048

// liveSuffix ends the name of a queue in SQS, as package sqs makes it.
const liveSuffix = "-q"

// maxQueue is the longest name of a queue, prefix and all, that package sqs
// leaves as it is: with the suffix of its dead letters it has SQS's 80.
const maxQueue = 75

// Places says where in an account things are, by the beginnings of their names.
type Places struct {
	Partition, Region, Account                  string
	QueuePrefix, LogGroupPrefix, ArtifactPrefix string
}

func (p Places) arn(service, resource string) string {
	return "arn:" + p.Partition + ":" + service + ":" + p.Region + ":" + p.Account + ":" + resource
}

// LogGroup is the name of an install's log group.
func (p Places) LogGroup(id fairlead.InstallID) string { return p.LogGroupPrefix + string(id) }

// Repository is what the names of an app's repositories are below: one for each
// of its components.
func (p Places) Repository(id fairlead.AppID) string { return p.ArtifactPrefix + string(id) }

func (p Places) repositories(id fairlead.AppID) string {
	return p.arn("ecr", "repository/"+p.Repository(id)+"/*")
}

// What sessions do, and so what the session role may do at most.
var (
	queueActions    = [...]string{"sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}
	logActions      = [...]string{"logs:CreateLogStream", "logs:PutLogEvents"}
	artifactActions = [...]string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"}
	publishActions  = [...]string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer",
		"ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage"}
	// The action knows no resource; it opens what the other statements allow.
	registryLogin = statement{"Allow", []string{"ecr:GetAuthorizationToken"}, "*"}
)

type statement struct {
	Effect   string
	Action   []string
	Resource string
}

// identifier is the shape of everything of a scope that gets into a policy: no
// wildcard, no variable, no separator of an ARN.
var identifier = regexp.MustCompile(`^[a-z0-9]{1,8}_[0-9a-zA-Z]{1,40}$`)

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// Policy returns the session policy of a scope, as JSON. It is a function of its
// arguments alone. A scope that reaches nothing, or whose names are not those of
// things that the control plane makes, is an error.
func Policy(p Places, s identity.Scope) (string, error) {
	for what, id := range map[string]string{"runner": string(s.Runner), "install": string(s.Install), "app": string(s.App)} {
		if !identifier.MatchString(id) {
			return "", fmt.Errorf("session policy: %.80q names no %s", id, what)
		}
	}
	var list []statement
	if s.Queue != "" {
		name := p.QueuePrefix + s.Queue
		if !queueName.MatchString(s.Queue) || len(name) > maxQueue {
			return "", fmt.Errorf("session policy: %.80q names no queue", name)
		}
		list = append(list, statement{"Allow", queueActions[:], p.arn("sqs", name+liveSuffix)})
	}
	if s.Job != "" {
		if !identifier.MatchString(string(s.Job)) || s.Epoch < 1 {
			return "", fmt.Errorf("session policy: %.80q, epoch %d, names no attempt", s.Job, s.Epoch)
		}
		stream := string(s.Job) + "/" + strconv.FormatInt(s.Epoch, 10)
		list = append(list,
			statement{"Allow", logActions[:], p.arn("logs", "log-group:"+p.LogGroup(s.Install)+":log-stream:"+stream)},
			statement{"Allow", artifactActions[:], p.repositories(s.App)}, registryLogin)
	}
	if len(list) == 0 {
		return "", fmt.Errorf("session policy: the scope of runner %s reaches nothing", s.Runner)
	}
	return render(list)
}

// PublishPolicy returns the session policy of who publishes an app: it pushes to
// the app's repositories, as JSON.
func PublishPolicy(p Places, app fairlead.AppID) (string, error) {
	if !identifier.MatchString(string(app)) {
		return "", fmt.Errorf("session policy: %.80q names no app", app)
	}
	return render([]statement{{"Allow", publishActions[:], p.repositories(app)}, registryLogin})
}

func render(list []statement) (string, error) {
	b, err := json.Marshal(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", list})
	if err != nil {
		return "", fmt.Errorf("session policy: %w", err)
	}
	if len(b) > MaxPolicy {
		return "", fmt.Errorf("session policy: it has %d characters, and STS takes %d", len(b), MaxPolicy)
	}
	return string(b), nil
}

// SessionName is a session's name, by which CloudTrail shows whose it was: the
// runner and the install. It has at most 64 characters, which STS takes.
func SessionName(s identity.Scope) string { return string(s.Runner) + "@" + string(s.Install) }

// parseRole returns the partition and the account of a role's ARN.
func parseRole(arn string) (partition, account string, err error) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "iam" || !strings.HasPrefix(parts[5], "role/") {
		return "", "", fmt.Errorf("%q is no ARN of a role", arn)
	}
	return parts[1], parts[4], nil
}
