// Package awssession gives runners short-lived credentials of the control plane's AWS account. All sessions assume
// one role. A session policy limits each of them to exactly one runner's queue, or to exactly one attempt's log and
// artifacts. One role for each install would exceed IAM's limit on roles.
//
// The role's own policy depends on the tags of the session. So two independent policies prevent a runner from using
// another runner's queue.
package awssession

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// The tags of a session.
const (
	TagRunner  = "fairlead-runner"
	TagInstall = "fairlead-install"
	TagApp     = "fairlead-app"
)

// MaxPolicy is the longest session policy, in characters (parameter Policy of AssumeRole). STS also packs policy and
// tags into a binary form with its own limit, and reports only the used percentage. A policy of this package uses a
// third of that limit.
const MaxPolicy = 2048

// liveSuffix is the suffix that package sqs gives a queue's name in SQS.
const liveSuffix = "-q"

// maxQueue is the longest name of a queue, including its prefix, that package sqs does not replace by a hash. With the
// suffix of the queue for dead letters, such a name has 80 characters, the limit of SQS.
const maxQueue = 75

// Places locates the resources in an account: its region, and the prefixes of their names.
type Places struct {
	Partition, Region, Account                  string
	QueuePrefix, LogGroupPrefix, ArtifactPrefix string
	CancelTable                                 string // table of cancel markers; "": none
	Images                                      Images
}

// Images locates what builds images in AWS CodeBuild.
type Images struct {
	Project  string // "": nothing builds images
	Bucket   string // of contexts and images
	LogGroup string // of the project
}

// builds begins the keys of the bucket. infra/control has the same text.
const builds = "builds/"

func (p Places) arn(service, resource string) string {
	return "arn:" + p.Partition + ":" + service + ":" + p.Region + ":" + p.Account + ":" + resource
}

// LogGroup returns the name of an install's log group.
func (p Places) LogGroup(id fairlead.InstallID) string { return p.LogGroupPrefix + string(id) }

// Repository returns the prefix of an app's repositories. Each component has one repository below it.
func (p Places) Repository(id fairlead.AppID) string { return p.ArtifactPrefix + string(id) }

// cancelKey returns the key of the marker of the attempt or the warm step.
func cancelKey(s identity.Scope) string {
	if s.Warm != "" {
		return cancelmark.OfWarmStep(s.Install, s.Warm).Key()
	}
	return cancelmark.Attempt{Install: s.Install, Job: s.Job, Epoch: s.Epoch}.Key()
}

func (p Places) repositories(id fairlead.AppID) string {
	return p.arn("ecr", "repository/"+p.Repository(id)+"/*")
}

// The actions of sessions. The session role permits no others.
var (
	queueActions    = [...]string{"sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}
	logActions      = [...]string{"logs:CreateLogStream", "logs:PutLogEvents"}
	artifactActions = [...]string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability"}
	publishActions  = [...]string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer",
		"ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage"}
	// pushActions are the publishActions that write.
	pushActions       = publishActions[3:]
	imageBuildActions = [...]string{"codebuild:StartBuild", "codebuild:BatchGetBuilds", "codebuild:StopBuild"}
	imageFileActions  = [...]string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
	// This action cannot be limited to resources. The login gives access only to resources that the other statements permit.
	registryLogin = statement{Effect: "Allow", Action: []string{"ecr:GetAuthorizationToken"}, Resource: "*"}
)

// builtFolder ends the names of the repositories to which only builds push; package control names them.
const builtFolder = "built"

type statement struct {
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// ownMarker permits reading the attempt's cancel marker and no other item. A request that reads
// one item always has its key in dynamodb:LeadingKeys. Without the key, this condition would be met;
// the session role's policy refuses such a request.
func (p Places) ownMarker(s identity.Scope) statement {
	return statement{Effect: "Allow", Action: []string{"dynamodb:GetItem"}, Resource: p.arn("dynamodb", "table/"+p.CancelTable),
		Condition: map[string]map[string][]string{"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": {cancelKey(s)}}}}
}

// identifier matches the values of a scope that become part of a policy. It permits no wildcard, no variable and no
// separator of an ARN.
var identifier = pattern.New(`^[a-z0-9]{1,8}_[0-9a-zA-Z]{1,40}$`)

var queueName = pattern.New(`^[A-Za-z0-9_-]{1,80}$`)

// Policy returns the session policy of a scope, as JSON. The result depends only on the arguments. It returns an
// error if the scope has neither a queue nor a job, if it has a job without an install and an app, or if a value does not
// have the form of the names that the control plane makes.
func Policy(p Places, s identity.Scope) (string, error) {
	ids := map[string]string{"runner": string(s.Runner)}
	switch {
	case s.Warm != "":
		if s.Job != "" || s.Queue != "" || p.CancelTable == "" {
			return "", fmt.Errorf("session policy: the scope of warm step %.80q has more than its marker, or there are no markers", s.Warm)
		}
		// The policy permits nothing of the app; the role's trust policy wants its tag.
		ids["install"], ids["app"], ids["warm step"] = string(s.Install), string(s.App), string(s.Warm)
	case s.Job != "" || s.Install != "" || s.App != "":
		ids["install"], ids["app"] = string(s.Install), string(s.App)
	}
	for what, id := range ids {
		if !identifier.MatchString(id) {
			return "", fmt.Errorf("session policy: %.80q is not the identifier of a %s", id, what)
		}
	}
	var list []statement
	if s.Queue != "" {
		name := p.QueuePrefix + s.Queue
		if !queueName.MatchString(s.Queue) || len(name) > maxQueue {
			return "", fmt.Errorf("session policy: %.80q is not a valid queue name", name)
		}
		list = append(list, statement{Effect: "Allow", Action: queueActions[:], Resource: p.arn("sqs", name+liveSuffix)})
	}
	if s.Job != "" {
		if !identifier.MatchString(string(s.Job)) || s.Epoch < 1 {
			return "", fmt.Errorf("session policy: job %.80q with epoch %d is not an attempt", s.Job, s.Epoch)
		}
		stream := string(s.Job) + "/" + strconv.FormatInt(s.Epoch, 10)
		if !s.NoLog {
			list = append(list, statement{Effect: "Allow", Action: logActions[:], Resource: p.arn("logs", "log-group:"+p.LogGroup(s.Install)+":log-stream:"+stream)})
		}
		list = append(list,
			statement{Effect: "Allow", Action: artifactActions[:], Resource: p.repositories(s.App)}, registryLogin)
		if p.CancelTable != "" {
			list = append(list, p.ownMarker(s))
		}
	}
	if s.Warm != "" {
		list = append(list, p.ownMarker(s))
	}
	if len(list) == 0 {
		return "", fmt.Errorf("session policy: the scope of runner %s has neither a queue nor a job", s.Runner)
	}
	return render(list)
}

// PublishPolicy returns the session policy for publishing an app, as JSON: it permits pushes to the app's
// repositories, except to those of built artifacts.
func PublishPolicy(p Places, app fairlead.AppID) (string, error) {
	if !identifier.MatchString(string(app)) {
		return "", fmt.Errorf("session policy: %.80q is not the identifier of an app", app)
	}
	return render([]statement{{Effect: "Allow", Action: publishActions[:], Resource: p.repositories(app)},
		{Effect: "Deny", Action: pushActions, Resource: p.repositories(app) + "/" + builtFolder}, registryLogin})
}

// componentName matches the name of a component. It permits no wildcard, no variable and no separator.
var componentName = pattern.New(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// BuildPolicy returns the session policy of a build, as JSON: it permits pushes to the repository of the component's
// built artifacts and to no other. It also permits pulls of the component's packed folder.
func BuildPolicy(p Places, app fairlead.AppID, component string) (string, error) {
	if !identifier.MatchString(string(app)) || !componentName.MatchString(component) {
		return "", fmt.Errorf("session policy: %.80q of %.80q is not a component of an app", component, app)
	}
	return render([]statement{{Effect: "Allow", Action: publishActions[:], Resource: p.arn("ecr", "repository/"+p.Repository(app)+"/"+component+"/"+builtFolder)},
		{Effect: "Allow", Action: artifactActions[:], Resource: p.arn("ecr", "repository/"+p.Repository(app)+"/"+component)}, registryLogin})
}

// ImageBuildPolicy returns the session policy of an attempt of a build that lets AWS CodeBuild build an image, as JSON: it
// permits builds of the project, access to the attempt's own objects, reading which build an earlier attempt of the job has
// started, and reading the attempt's own log. It permits no push.
func ImageBuildPolicy(p Places, app fairlead.AppID, id fairlead.JobID, epoch int64) (string, error) {
	if !identifier.MatchString(string(app)) || !identifier.MatchString(string(id)) || epoch < 1 || p.Images.Project == "" {
		return "", fmt.Errorf("session policy: job %.80q of app %.80q with epoch %d is not an attempt of a build, or nothing builds images", id, app, epoch)
	}
	own := p.image(app, id, epoch)
	return render([]statement{
		{Effect: "Allow", Action: imageBuildActions[:], Resource: p.arn("codebuild", "project/"+own.Project)},
		{Effect: "Allow", Action: imageFileActions[:], Resource: "arn:" + p.Partition + ":s3:::" + own.Bucket + "/" + own.Prefix + "*"},
		{Effect: "Allow", Action: imageFileActions[:1], Resource: "arn:" + p.Partition + ":s3:::" + own.Bucket + "/" + builds + string(app) + "/" + string(id) + "/*/build"},
		{Effect: "Allow", Action: []string{"logs:GetLogEvents"}, Resource: p.arn("logs", "log-group:"+own.LogGroup+":log-stream:"+own.LogStream+"/*")},
	})
}

// image returns the place of an attempt of a build. The app comes first, because the role's own policy depends on it.
func (p Places) image(app fairlead.AppID, id fairlead.JobID, epoch int64) identity.ImagePlace {
	attempt := string(app) + "/" + string(id) + "/" + strconv.FormatInt(epoch, 10)
	return identity.ImagePlace{Project: p.Images.Project, Bucket: p.Images.Bucket, Prefix: builds + attempt + "/", LogGroup: p.Images.LogGroup, LogStream: attempt}
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
		return "", fmt.Errorf("session policy: it has %d characters, more than the limit of STS, %d", len(b), MaxPolicy)
	}
	return string(b), nil
}

// Tag is one tag of a session.
type Tag struct{ Key, Value string }

// Tags returns the tags of a session. A session without an install has neither a tag of an install
// nor one of an app, so the statements of the role's policy that name these tags permit it nothing.
func Tags(s identity.Scope) []Tag {
	tags := []Tag{{TagRunner, string(s.Runner)}}
	if s.Install != "" {
		tags = append(tags, Tag{TagInstall, string(s.Install)}, Tag{TagApp, string(s.App)})
	}
	return tags
}

// SessionName returns the session's name: the runner and, for an attempt, its install. CloudTrail shows it. It has at most
// 64 characters, the limit of STS.
func SessionName(s identity.Scope) string {
	if s.Install == "" {
		return string(s.Runner)
	}
	return string(s.Runner) + "@" + string(s.Install)
}

// parseRole returns the partition and the account of a role's ARN.
func parseRole(arn string) (partition, account string, err error) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "iam" || !strings.HasPrefix(parts[5], "role/") {
		return "", "", fmt.Errorf("%q is not the ARN of a role", arn)
	}
	return parts[1], parts[4], nil
}
