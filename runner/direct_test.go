package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/accesstest"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/testserver"
)

// account is the control plane's AWS account: a runner's queue and an install's log group, on local servers.
type account struct {
	t      *testing.T
	cfg    aws.Config
	server string // the runner's AWS endpoint
	queue  *sqs.Queue
	prefix string        // of the queues' names
	group  string        // the log group of the install ins_1
	groups string        // prefix of the names of log groups
	issued atomic.Int64  // number of issued accesses
	life   time.Duration // lifetime of each issued access
}

// queueOfRunner is the control plane's name of the runner's queue.
const queueOfRunner = "runner-" + string(plane.RunnerID)

func newAccount(t *testing.T) *account {
	t.Helper()
	return newAccountOf(t, 3)
}

// newAccountOf is newAccount with the number of deliveries after which a message becomes a dead letter.
func newAccountOf(t *testing.T, receives int) *account {
	t.Helper()
	endpoint := others.Endpoint(t)
	id := strings.ToLower(rand.Text())[:10]
	a := &account{t: t, server: endpoint, group: "/fairlead-" + id + "/install/ins_1", groups: "/fairlead-" + id + "/install/", life: 15 * time.Minute,
		cfg:    aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIAVENDOR", "vendor", "")},
		prefix: "q" + id + "-"}
	var err error
	if a.queue, err = sqs.New(a.cfg, sqs.Options{Prefix: a.prefix, MaxReceives: receives, Make: true, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if err := a.queue.Make(t.Context(), queueOfRunner, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := cloudwatchlogs.NewFromConfig(a.cfg).CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &a.group}); err != nil {
		t.Fatal(err)
	}
	return a
}

// environ returns the runner's variables that replace AWS's endpoints.
func (a *account) environ() []string {
	return []string{"AWS_ENDPOINT_URL_SQS=" + a.server, "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=" + a.server, "AWS_EC2_METADATA_DISABLED=true",
		"FAIRLEAD_PASS_ENV=AWS_ENDPOINT_URL_CLOUDWATCH_LOGS"}
}

func (a *account) send(body []byte) {
	a.t.Helper()
	if err := a.queue.Send(a.t.Context(), queueOfRunner, body, 0); err != nil {
		a.t.Fatal(err)
	}
}

func (a *account) wake(job string) { a.send(events.Wake{Job: fairlead.JobID(job)}.Encode()) }

// Grant implements identity.Granter: access to the queue of a session, or to the log
// of an attempt.
func (a *account) Grant(ctx context.Context, s identity.Scope) (identity.Access, error) {
	if ctx.Err() != nil {
		return identity.Access{}, ctx.Err()
	}
	n := a.issued.Add(1)
	if s.Queue != "" {
		return identity.Access{Region: "eu-central-1", AccessKeyID: "ASIASESSION", SecretAccessKey: "the-sessions-secret", SessionToken: fmt.Sprint(n),
			Expires: time.Now().Add(15 * time.Minute), QueuePrefix: a.prefix, Queue: s.Queue}, nil
	}
	return identity.Access{Region: "eu-central-1", AccessKeyID: fmt.Sprintf("ASIALOG%d", n), SecretAccessKey: fmt.Sprintf("the-logs-secret-%d", n), SessionToken: "t",
		Expires: time.Now().Add(a.life), LogGroup: a.groups + string(s.Install), Repository: "app/" + string(s.App),
		Cancel: cancelmark.Place{URL: a.server, Table: "cancels", Key: cancelmark.Attempt{Install: s.Install, Job: s.Job, Epoch: s.Epoch}.Key()}}, nil
}

func TestAccountGrantsAccess(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	accesstest.Run(t, accesstest.Harness{Open: func(*testing.T) identity.Granter { return a }})
}

// options returns the options of a control plane in the account.
func (a *account) options() plane.Options {
	return plane.Options{Queue: a.queue, Access: a, Log: indexed{joblogtest.Memory(), a}}
}

// indexed is a log that also finds what runners wrote directly to CloudWatch.
type indexed struct {
	joblog.Log
	a *account
}

// Read implements joblog.Log.
func (i indexed) Read(ctx context.Context, s joblog.Stream, offset int64, most int) (joblog.Chunk, error) {
	if err := cloudwatch.NewTransport(i.a.cfg, i.a.group, time.Now).Repair(ctx, i.Log, s); err != nil {
		return joblog.Chunk{}, err
	}
	return i.Log.Read(ctx, s, offset, most)
}

// direct returns a check in the install whose stack the runner belongs to: its log goes directly to CloudWatch.
func direct() events.JobSpec {
	sp := checkSpec()
	sp.Install, sp.InstallName = "ins_1", "acme"
	return sp
}

// index returns an attempt's log as the index builds it from CloudWatch.
func (a *account) index(job string, epoch int64) []byte {
	s, log := joblog.Stream{Job: job, Epoch: epoch}, joblogtest.Memory()
	if err := log.Open(a.t.Context(), s); err != nil {
		a.t.Error(err)
	}
	if err := cloudwatch.NewTransport(a.cfg, a.group, time.Now).Repair(a.t.Context(), log, s); err != nil {
		a.t.Error(err)
	}
	c, err := log.Read(a.t.Context(), s, 0, joblog.MaxRead)
	if err != nil {
		a.t.Error(err)
	}
	return c.Data
}

// A runner with access to its queue and its log group uses both: the API gets a claim by name, and no log.
func TestRunnerUsesItsQueueAndLogGroup(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	s := plane.New(t, a.options())
	agent := startAgent(t, s, "", append(a.environ(), "FAIRLEAD_TOFU="+tool(t))...)

	a.send([]byte("not a wake-up")) // refused; blocks nothing
	a.wake("job_that_is_not_there")
	job := s.Queue(direct())
	a.wake(job) // SQS may deliver twice
	j := s.UntilFinished(job)
	if j.Finish.Outcome != "succeeded" || !j.ByName || j.Appends != 0 || !strings.Contains(string(j.Log), "runs job "+job) {
		t.Errorf("finished as %+v, claimed by name: %t, %d appends, with the log %q", *j.Finish, j.ByName, j.Appends, j.Log)
	}
	testserver.Until(t, "the refusal of the invalid message", func() bool { return strings.Contains(agent.out.String(), "a message that is not a wake-up") })

	// A tool with much output, and with its own credentials in it.
	long := s.Queue(planSpec("local", s.Push(map[string]string{"main.tf": exampleModule})))
	if j := succeeded(t, s.UntilFinished(long)); j.Appends != 0 || len(j.Log) == 0 {
		t.Errorf("%d appends, %d bytes of log", j.Appends, len(j.Log))
	}
	for _, secret := range []string{"the-sessions-secret", "the-logs-secret"} {
		if strings.Contains(agent.out.String(), secret) {
			t.Errorf("%s is in the agent's log", secret)
		}
	}
}

// If the network lets a runner reach only the control plane, the runner still works.
func TestRunnerWithoutItsQueueUsesTheAPI(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	s := plane.New(t, a.options())
	const nowhere = "http://127.0.0.1:1" // a port that no server of a parallel test gets
	agent := startAgent(t, s, "", "AWS_ENDPOINT_URL_SQS="+nowhere, "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS="+nowhere, "AWS_EC2_METADATA_DISABLED=true",
		"FAIRLEAD_PASS_ENV=AWS_ENDPOINT_URL_CLOUDWATCH_LOGS")
	j := s.UntilFinished(s.Queue(direct()))
	if j.Finish.Outcome != "succeeded" || j.ByName || j.Appends == 0 || j.Finish.Log.Truncated {
		t.Errorf("finished as %+v, claimed by name: %t, %d appends", *j.Finish, j.ByName, j.Appends)
	}
	testserver.Until(t, "the agent's warning", func() bool { return strings.Contains(agent.out.String(), "the runner's queue cannot be polled") })
}

// The access to a log expires during a job. The step requests new access with its lease token.
func TestLogAccessIsRenewedDuringAJob(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	a.life = time.Minute // a step renews its access when 3 minutes or less are left, so this access is renewed at its first use
	s := plane.New(t, a.options())
	startAgent(t, s, "", a.environ()...)
	job := s.Queue(direct())
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || j.Appends != 0 || j.LogRenewals == 0 || !strings.Contains(string(j.Log), job) {
		t.Errorf("finished as %+v after %d renewals and %d appends", *j.Finish, j.LogRenewals, j.Appends)
	}
}

// If the index lacks a part of the log when the job ends, the step sends that part through the API. A slow subscription does
// not delay a deployment.
func TestUnindexedLogIsSentThroughTheAPI(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	s := plane.New(t, plane.Options{Queue: a.queue, Access: a})
	startAgent(t, s, "", a.environ()...)
	job := s.Queue(direct())
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || j.Appends == 0 || j.Finish.Log.Truncated || string(j.Log) != string(a.index(job, j.Epoch)) {
		t.Errorf("finished as %+v after %d appends, with the log %q", *j.Finish, j.Appends, j.Log)
	}
}
