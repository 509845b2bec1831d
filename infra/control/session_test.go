package control_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awssession"
)

// places are the settings of the stack under test, as its Runner API gets them.
var places = awssession.Places{Partition: "aws", Region: "eu-central-1", Account: infratest.Account,
	QueuePrefix: "fairlead-test-", LogGroupPrefix: "/fairlead-test/install/", ArtifactPrefix: "fairlead-test/app/"}

func sessionPolicy(t *testing.T, places awssession.Places, s identity.Scope) map[string]any {
	t.Helper()
	text, err := awssession.Policy(places, s)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// The rows test runner A's credentials: the rendered session policy, on the
// synthesized session role, with the session's tags.
func TestRunnerCredentialsAreLimited(t *testing.T) {
	s := stack(t)
	if control.TagRunner != awssession.TagRunner || control.TagInstall != awssession.TagInstall || control.TagApp != awssession.TagApp {
		t.Fatal("the tags of sessions differ from the tags of the session role")
	}
	tags := func(x string) map[string]any {
		return map[string]any{"aws:PrincipalTag/fairlead-runner": "run_" + x, "aws:PrincipalTag/fairlead-install": "ins_" + x, "aws:PrincipalTag/fairlead-app": "app_" + x}
	}
	item := func(x string, keys ...any) map[string]any {
		c := maps.Clone(tags(x))
		c["dynamodb:LeadingKeys"] = keys
		return c
	}
	places := places
	places.CancelTable = strings.TrimPrefix(s.ARN("Cancels"), "arn:aws:dynamodb:eu-central-1:"+infratest.Account+":table/")
	// A session's credentials have the runner's tag only: the runner may serve many installs.
	only := func(x string) map[string]any { return map[string]any{"aws:PrincipalTag/fairlead-runner": "run_" + x} }
	poll := sessionPolicy(t, places, identity.Scope{Runner: "run_a", Queue: "runner-run_a"})
	step := sessionPolicy(t, places, identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Job: "job_a", Epoch: 2})
	rows := []struct {
		what             string
		policy           map[string]any
		tags             map[string]any
		action, resource string
		allowed          bool
	}{
		{"a session finds its queue", poll, only("a"), "sqs:GetQueueUrl", sqs + "run_a-q", true},
		{"a session polls its queue", poll, only("a"), "sqs:ReceiveMessage", sqs + "run_a-q", true},
		{"a session takes a wake-up off its queue", poll, only("a"), "sqs:DeleteMessage", sqs + "run_a-q", true},
		{"a session returns a wake-up to its queue", poll, only("a"), "sqs:ChangeMessageVisibility", sqs + "run_a-q", true},
		{"a session reads another's queue", poll, only("a"), "sqs:ReceiveMessage", sqs + "run_b-q", false},
		{"a session takes another's wake-ups", poll, only("a"), "sqs:DeleteMessage", sqs + "run_b-q", false},
		{"a session reads a queue whose name has the same prefix", poll, only("a"), "sqs:ReceiveMessage", sqs + "run_ab-q", false},
		{"a session reads its dead-letter queue and hides its failures", poll, only("a"), "sqs:ReceiveMessage", sqs + "run_a-dead", false},
		{"a session sends itself work", poll, only("a"), "sqs:SendMessage", sqs + "run_a-q", false},
		{"a session sends another work", poll, only("a"), "sqs:SendMessage", sqs + "run_b-q", false},
		{"a session writes into the log of a job that it did not start", poll, only("a"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_a/2", false},
		{"a session fetches an app", poll, only("a"), "ecr:BatchGetImage", ecr + "app/app_a/web", false},

		{"a session without a session policy writes the log of an install that its runner serves", nil, only("a"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_a/2", false},
		{"a session without a session policy fetches an app", nil, only("a"), "ecr:BatchGetImage", ecr + "app/app_a/web", false},
		{"a session without a session policy reads another's queue", nil, only("a"), "sqs:ReceiveMessage", sqs + "run_b-q", false},

		{"an attempt makes its log", step, tags("a"), "logs:CreateLogStream", logs + "ins_a:log-stream:job_a/2", true},
		{"an attempt writes its log", step, tags("a"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_a/2", true},
		{"an attempt writes the log of the previous attempt", step, tags("a"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_a/1", false},
		{"an attempt writes a log whose name has the same prefix", step, tags("a"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_a/22", false},
		{"an attempt writes another job's log", step, tags("a"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_b/2", false},
		{"an attempt writes another install's log", step, tags("a"), "logs:PutLogEvents", logs + "ins_b:log-stream:job_a/2", false},
		{"an attempt reads its log, and so others'", step, tags("a"), "logs:GetLogEvents", logs + "ins_a:log-stream:job_a/2", false},
		{"an attempt removes its log", step, tags("a"), "logs:DeleteLogStream", logs + "ins_a:log-stream:job_a/2", false},
		{"an attempt fetches its app", step, tags("a"), "ecr:BatchGetImage", ecr + "app/app_a/web", true},
		{"an attempt fetches another vendor app", step, tags("a"), "ecr:BatchGetImage", ecr + "app/app_b/web", false},
		{"an attempt replaces its app", step, tags("a"), "ecr:PutImage", ecr + "app/app_a/web", false},
		{"an attempt takes wake-ups", step, tags("a"), "sqs:ReceiveMessage", sqs + "run_a-q", false},
		{"an attempt becomes another session", step, tags("a"), "sts:AssumeRole", session, false},
		{"an attempt reads the table", step, item("a", "ins_a/job_a/2"), "dynamodb:GetItem", s.ARN("Table"), false},
		{"an attempt reads its cancel marker", step, item("a", "ins_a/job_a/2"), "dynamodb:GetItem", s.ARN("Cancels"), true},
		{"an attempt reads the marker of the previous attempt", step, item("a", "ins_a/job_a/1"), "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"an attempt reads a marker whose key has the same prefix", step, item("a", "ins_a/job_a/22"), "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"an attempt reads another job's marker", step, item("a", "ins_a/job_b/2"), "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"an attempt reads another install's marker", step, item("a", "ins_b/job_a/2"), "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"an attempt reads its marker and another's in one request", step, item("a", "ins_a/job_a/2", "ins_b/job_a/2"), "dynamodb:BatchGetItem", s.ARN("Cancels"), false},
		{"an attempt lists markers without a key", step, tags("a"), "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"an attempt reads all markers", step, tags("a"), "dynamodb:Scan", s.ARN("Cancels"), false},
		{"an attempt cancels itself", step, item("a", "ins_a/job_a/2"), "dynamodb:PutItem", s.ARN("Cancels"), false},
		{"an attempt cancels another", step, item("a", "ins_b/job_b/1"), "dynamodb:PutItem", s.ARN("Cancels"), false},
		{"an attempt removes its marker", step, item("a", "ins_a/job_a/2"), "dynamodb:DeleteItem", s.ARN("Cancels"), false},
		{"a session without a session policy reads the marker of a job", nil, map[string]any{"aws:PrincipalTag/fairlead-runner": "run_a", "dynamodb:LeadingKeys": []any{"ins_a/job_a/2"}}, "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"a session reads the marker of a job", poll, item("a", "ins_a/job_a/2"), "dynamodb:GetItem", s.ARN("Cancels"), false},

		{"an attempt writes the log of another install that its runner serves", step, tags("a"), "logs:CreateLogStream", logs + "ins_c:log-stream:job_a/2", false},

		// The session policy and the tags each limit a session. A's policy in a session
		// with B's tags allows nothing. B's policy in a session with A's tags allows
		// nothing either.
		{"A's policy in B's session reads A's queue", poll, only("b"), "sqs:ReceiveMessage", sqs + "run_a-q", false},
		{"A's policy in B's session reads B's queue", poll, only("b"), "sqs:ReceiveMessage", sqs + "run_b-q", false},
		{"A's policy in B's session writes A's log", step, tags("b"), "logs:PutLogEvents", logs + "ins_a:log-stream:job_a/2", false},
		{"A's policy in B's session reads A's marker", step, item("b", "ins_a/job_a/2"), "dynamodb:GetItem", s.ARN("Cancels"), false},
		{"A's policy without tags", poll, nil, "sqs:ReceiveMessage", sqs + "run_a-q", false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		questions = append(questions, infratest.Question{Principal: s.ARN("SessionRole"), Action: r.action, Resource: r.resource, Account: infratest.Account,
			Context: r.tags, Identity: s.Policies("SessionRole"), Session: r.policy})
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s (%s on %s): %t, want %t", r.what, r.action, r.resource, allowed, r.allowed)
		}
	}
}

// The rows test the credentials with which attempt 2 of job_a lets CodeBuild build an image: the rendered session policy, on
// the synthesized role, with the session's tag. The other sessions of the role push, and build no image.
func TestImageBuildCredentialsAreLimited(t *testing.T) {
	s := stack(t)
	variables := s.Resources["RunnerAPI"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
	places := places
	places.Images = awssession.Images{Project: variables["FAIRLEAD_IMAGE_PROJECT"].(string), Bucket: strings.TrimPrefix(s.ARN("Builds"), "arn:aws:s3:::"), LogGroup: variables["FAIRLEAD_IMAGE_LOG_GROUP"].(string)}
	read := func(text string, err error) (document map[string]any) {
		if err == nil {
			err = json.Unmarshal([]byte(text), &document)
		}
		if err != nil {
			t.Fatal(err)
		}
		return document
	}
	images := read(awssession.ImageBuildPolicy(places, "app_a", "job_a", 2))
	push := read(awssession.BuildPolicy(places, "app_a", "web"))
	builds := s.ARN("Builds") + "/builds/"
	rows := []struct {
		what             string
		policy           map[string]any
		app              string
		action, resource string
		allowed          bool
	}{
		{"an attempt starts a build", images, "app_a", "codebuild:StartBuild", project, true},
		{"an attempt follows its build", images, "app_a", "codebuild:BatchGetBuilds", project, true},
		{"an attempt stops its build", images, "app_a", "codebuild:StopBuild", project, true},
		{"an attempt starts another project", images, "app_a", "codebuild:StartBuild", project + "2", false},
		{"an attempt stores its context", images, "app_a", "s3:PutObject", builds + "app_a/job_a/2/1/context.tar.gz", true},
		{"an attempt fetches its image", images, "app_a", "s3:GetObject", builds + "app_a/job_a/2/1/layout.tar", true},
		{"an attempt removes its objects", images, "app_a", "s3:DeleteObject", builds + "app_a/job_a/2/1/layout.tar", true},
		{"an attempt reads the object of the previous attempt", images, "app_a", "s3:GetObject", builds + "app_a/job_a/1/1/layout.tar", false},
		{"an attempt reads an object whose prefix begins as its own", images, "app_a", "s3:GetObject", builds + "app_a/job_a/22/1/layout.tar", false},
		{"an attempt replaces the image of another job of its app", images, "app_a", "s3:PutObject", builds + "app_a/job_b/2/1/layout.tar", false},
		{"an attempt replaces the image of another app", images, "app_a", "s3:PutObject", builds + "app_b/job_a/2/1/layout.tar", false},
		{"an attempt reads its log", images, "app_a", "logs:GetLogEvents", imageLog + "app_a/job_a/2/uuid", true},
		{"an attempt reads the log of another job", images, "app_a", "logs:GetLogEvents", imageLog + "app_a/job_b/2/uuid", false},
		{"an attempt writes its log", images, "app_a", "logs:PutLogEvents", imageLog + "app_a/job_a/2/uuid", false},
		{"an attempt pushes with this access", images, "app_a", "ecr:PutImage", ecr + "app/app_a/web/built", false},
		{"an attempt logs in to the registry with this access", images, "app_a", "ecr:GetAuthorizationToken", "*", false},
		{"A's policy in B's session fetches an image", images, "app_b", "s3:GetObject", builds + "app_a/job_a/2/1/layout.tar", false},
		{"A's policy in B's session reads a log", images, "app_b", "logs:GetLogEvents", imageLog + "app_a/job_a/2/uuid", false},
		{"the login that pushes starts a build", push, "app_a", "codebuild:StartBuild", project, false},
		{"the login that pushes fetches an image", push, "app_a", "s3:GetObject", builds + "app_a/job_a/2/1/layout.tar", false},
		{"a session without a session policy reads the image of another app", nil, "app_a", "s3:GetObject", builds + "app_b/job_a/2/1/layout.tar", false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		questions = append(questions, infratest.Question{Principal: s.ARN("BuilderRole"), Action: r.action, Resource: r.resource, Account: infratest.Account,
			Context: map[string]any{"aws:PrincipalTag/fairlead-app": r.app}, Identity: s.Policies("BuilderRole"), Session: r.policy})
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s (%s on %s): %t, want %t", r.what, r.action, r.resource, allowed, r.allowed)
		}
	}
}

// The trust policy of the role accepts the names and the tags that the functions give to
// sessions and to attempts.
func TestFunctionsOpenSessions(t *testing.T) {
	s := stack(t)
	for role, scope := range map[string]identity.Scope{"SessionAPIRole": {Runner: "run_a"}, "RunnerAPIRole": {Runner: "run_a", Install: "ins_a", App: "app_a"}} {
		context := map[string]any{"sts:RoleSessionName": awssession.SessionName(scope)}
		var keys []any
		for _, tag := range awssession.Tags(scope) {
			context["aws:RequestTag/"+tag.Key] = tag.Value
			keys = append(keys, tag.Key)
		}
		context["aws:TagKeys"] = keys
		for _, action := range []string{"sts:AssumeRole", "sts:TagSession"} {
			if got := infratest.Ask(t, []infratest.Question{{Principal: s.ARN(role), Action: action, Resource: session, Account: infratest.Account, Context: context,
				Identity: s.Policies(role), ResourceP: s.Resources["SessionRole"].Properties["AssumeRolePolicyDocument"].(map[string]any)}}); !got[0] {
				t.Errorf("%s may not %s as %s", role, action, awssession.SessionName(scope))
			}
		}
	}
}
