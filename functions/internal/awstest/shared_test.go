package awstest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/test/hosts"
)

// One runner serves two installs of different apps. All wake-ups come from the runner's one queue. The jobs
// of each install write to the log group of their install, and pull from the repositories of their app. The
// test then takes the credentials that the control plane gave to a job of each install: AWS refuses
// them the log and the repository of the other install.
func TestSharedRunnersJobsAreKeptApart(t *testing.T) {
	skipIfShort(t)
	needTofu(t)
	a := deploy(t, releasedTemplate(t, released()))
	var mu sync.Mutex
	given := map[string]aws.Credentials{} // by job
	front := edited(a.front(), wire.StartJob, func(r *http.Request, answer []byte) []byte {
		var s wire.Started
		if json.Unmarshal(answer, &s) == nil && s.Log != nil {
			mu.Lock()
			defer mu.Unlock()
			given[r.PathValue("job")] = aws.Credentials{AccessKeyID: s.Log.AccessKeyID, SecretAccessKey: s.Log.SecretAccessKey, SessionToken: s.Log.SessionToken}
		}
		return answer
	})
	w := connect(t, a, map[string]http.Handler{planeHost: front, "api.ecr." + region + ".amazonaws.com": a.gates["ECR"].handler}).operated()
	defer w.close()
	w.cli("runner", "create", "shared", "--file", w.writeRunner("runner_configuration: {type: local}\nstate_storage_configuration: {type: http}\n"))
	stop := w.startAgent("shared", "FAIRLEAD_SHARED_PROCESS=true", "FAIRLEAD_TOFU="+w.toolIn("process"), "FAIRLEAD_READABLE="+filepath.Dir(os.Getenv("FAIRLEAD_TOFU")))
	defer stop()

	type side struct {
		install, group, repository string
		jobs                       []wire.Job
	}
	o := &outside{account: w.account, client: &http.Client{Transport: hosts.Transport(t, w.authority, w.proxy)}}
	var sides []side
	for _, name := range []string{"one", "two"} {
		w.app(name, map[string]string{"main.tf": placed + "# " + name + "\n"}) // the runner downloads equal components once
		w.cli("install", "create", name, "--app", name, "--runner", "shared")
		d := w.deployed(name)
		w.checkOwn(name, d, "place=process")
		sides = append(sides, side{name, w.logGroupOf(ask[wire.Install](w, "install", "show", name).ID),
			o.given("runnerapi", "FAIRLEAD_ARTIFACT_PREFIX") + ask[wire.App](w, "app", "show", name).ID + "/web", w.jobs(d)})
	}
	runner, role := ask[wire.Runner](w, "runner", "show", "shared"), w.attribute("SessionRole", "Arn")
	if n := w.guard.UsesOf(role, runner.ID, "sqs:DeleteMessage"); n < len(sides[0].jobs)+len(sides[1].jobs) {
		t.Errorf("the runner took %d wake-ups from its queue, want those of all jobs", n)
	}

	queue := o.given("runnerapi", "FAIRLEAD_QUEUE_PREFIX") + "runner-" + runner.ID + "-q"
	made, err := sqs.NewFromConfig(w.account.config("SQS")).GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &queue})
	w.ok("find the runner's queue", err)
	receive := func(ctx context.Context, cfg aws.Config) error {
		_, err := sqs.NewFromConfig(cfg).ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl})
		return err
	}
	// The stream may exist.
	begin := func(group, stream string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := cloudwatchlogs.NewFromConfig(cfg).CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: &group, LogStreamName: &stream})
			if _, exists := errors.AsType[*logtypes.ResourceAlreadyExistsException](err); exists {
				return nil
			}
			return err
		}
	}
	put := func(group, stream string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error {
			_, err := cloudwatchlogs.NewFromConfig(cfg).PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{LogGroupName: &group, LogStreamName: &stream,
				LogEvents: []logtypes.InputLogEvent{{Message: aws.String("x"), Timestamp: aws.Int64(1)}}})
			return err
		}
	}
	pull := func(repository string) func(context.Context, aws.Config) error {
		return func(ctx context.Context, cfg aws.Config) error { return o.pull(ctx, cfg, repository) }
	}
	for i, own := range sides {
		other := sides[1-i]
		var streams []string
		logs, err := cloudwatchlogs.NewFromConfig(w.account.config("CLOUDWATCH_LOGS")).DescribeLogStreams(t.Context(), &cloudwatchlogs.DescribeLogStreamsInput{LogGroupName: &own.group})
		w.ok("list the streams of "+own.group, err)
		for _, s := range logs.LogStreams {
			streams = append(streams, *s.LogStreamName)
		}
		var want []string
		for _, j := range own.jobs {
			want = append(want, cloudwatch.StreamName(joblog.Stream{Job: j.ID, Epoch: j.Epoch}))
		}
		slices.Sort(streams)
		slices.Sort(want)
		if !slices.Equal(streams, want) {
			t.Errorf("the log group of install %s has the streams %q, want those of its jobs, %q", own.install, streams, want)
		}
		job := own.jobs[0]
		mu.Lock()
		as := o.as(given[job.ID])
		mu.Unlock()
		stream := cloudwatch.StreamName(joblog.Stream{Job: job.ID, Epoch: job.Epoch})
		others := cloudwatch.StreamName(joblog.Stream{Job: other.jobs[0].ID, Epoch: other.jobs[0].Epoch})
		what := "a job of install " + own.install
		o.attack([]attempt{
			{what + " begins its log", as, begin(own.group, stream), true},
			{what + " pulls its app", as, pull(own.repository), true},
			{what + " begins a log of the other install", as, begin(other.group, others), false},
			{what + " writes a log of the other install", as, put(other.group, others), false},
			{what + " writes its log to the other install", as, put(other.group, stream), false},
			{what + " writes the other's log to its install", as, put(own.group, others), false},
			{what + " pulls the other app", as, pull(other.repository), false},
			{what + " takes wake-ups of its runner", as, receive, false},
		})
	}
}
