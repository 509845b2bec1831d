package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/fairlead/fairlead/events"
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

// account is the control plane's side of AWS: a runner's queue and an install's
// log group, on real servers.
type account struct {
	t      *testing.T
	cfg    aws.Config
	server string // where the runner finds AWS
	queue  *sqs.Queue
	prefix string        // of its queues
	group  string        // of the install ins_1
	groups string        // what the names of groups begin with
	issued atomic.Int64  // accesses
	life   time.Duration // of each
}

// queueOfRunner is what the control plane calls the queue of its runner.
const queueOfRunner = "runner-" + string(plane.RunnerID)

func newAccount(t *testing.T) *account {
	t.Helper()
	endpoint := others.Endpoint(t)
	id := strings.ToLower(rand.Text())[:10]
	a := &account{t: t, server: endpoint, group: "/fairlead-" + id + "/install/ins_1", groups: "/fairlead-" + id + "/install/", life: 15 * time.Minute,
		cfg:    aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIAVENDOR", "vendor", "")},
		prefix: "q" + id + "-"}
	var err error
	if a.queue, err = sqs.New(a.cfg, sqs.Options{Prefix: a.prefix, MaxReceives: 3, Make: true, Now: time.Now}); err != nil {
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

// environ is what differs from AWS for the runner.
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
		Expires: time.Now().Add(a.life), LogGroup: a.groups + string(s.Install), Repository: "app/" + string(s.App)}, nil
}

func TestTheAccountGrants(t *testing.T) {
	a := newAccount(t)
	accesstest.Run(t, accesstest.Harness{Open: func(*testing.T) identity.Granter { return a }})
}

// options are those of a control plane in the account.
func (a *account) options() plane.Options {
	return plane.Options{Queue: a.queue, Access: a, Log: indexed{joblogtest.Memory(), a}}
}

// indexed is a log that finds what runners have written beside the API.
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

// direct is a check in the install whose stack the runner is in: its log goes
// beside the API.
func direct() events.JobSpec {
	sp := checkSpec()
	sp.Install, sp.InstallName = "ins_1", "acme"
	return sp
}

// index returns what has come of an attempt's log, as the index would have it.
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

// A runner that is given a way to its queue and its logs takes it: the API sees
// a claim by name, and nothing of the log.
func TestARunnerPollsItsQueueAndWritesItsLogItself(t *testing.T) {
	a := newAccount(t)
	s := plane.New(t, a.options())
	agent := startAgent(t, s, "", append(a.environ(), "FAIRLEAD_TOFU="+tool(t))...)

	a.send([]byte("of a stranger")) // refused, and nothing else waits for it
	a.wake("job_that_is_not_there")
	job := s.Queue(direct())
	a.wake(job) // SQS delivers twice
	j := s.UntilFinished(job)
	if j.Finish.Outcome != "succeeded" || !j.ByName || j.Appends != 0 || !strings.Contains(string(j.Log), "runs job "+job) {
		t.Errorf("finished as %+v, claimed by name: %t, %d appends, with the log %q", *j.Finish, j.ByName, j.Appends, j.Log)
	}
	testserver.Until(t, "the refusal of the stranger's message", func() bool { return strings.Contains(agent.out.String(), "a message that is not a wake-up") })

	// A tool with much to say, and its own credentials among it.
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

// Where the network lets a runner out to the control plane alone, it works all
// the same.
func TestARunnerThatDoesNotReachItsQueue(t *testing.T) {
	a := newAccount(t)
	s := plane.New(t, a.options())
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := "http://" + closed.Addr().String()
	closed.Close()
	agent := startAgent(t, s, "", "AWS_ENDPOINT_URL_SQS="+nowhere, "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS="+nowhere, "AWS_EC2_METADATA_DISABLED=true",
		"FAIRLEAD_PASS_ENV=AWS_ENDPOINT_URL_CLOUDWATCH_LOGS")
	j := s.UntilFinished(s.Queue(direct()))
	if j.Finish.Outcome != "succeeded" || j.ByName || j.Appends == 0 || j.Finish.Log.Truncated {
		t.Errorf("finished as %+v, claimed by name: %t, %d appends", *j.Finish, j.ByName, j.Appends)
	}
	testserver.Until(t, "a word about it", func() bool { return strings.Contains(agent.out.String(), "the runner's queue cannot be polled") })
}

// Access to a log ends in the middle of a job, and the next is bought with the
// job's lease.
func TestAccessToALogExpiresInTheMiddleOfAJob(t *testing.T) {
	a := newAccount(t)
	a.life = time.Minute // less than what a step wants to have left
	s := plane.New(t, a.options())
	startAgent(t, s, "", a.environ()...)
	job := s.Queue(direct())
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || j.Appends != 0 || j.LogRenewals == 0 || !strings.Contains(string(j.Log), job) {
		t.Errorf("finished as %+v after %d renewals and %d appends", *j.Finish, j.LogRenewals, j.Appends)
	}
}

// What the index has not yet when the job ends is sent through the API, so a
// slow subscription holds up no deployment.
func TestALogWhoseIndexLags(t *testing.T) {
	a := newAccount(t)
	s := plane.New(t, plane.Options{Queue: a.queue, Access: a})
	startAgent(t, s, "", a.environ()...)
	job := s.Queue(direct())
	if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || j.Appends == 0 || j.Finish.Log.Truncated || string(j.Log) != string(a.index(job, j.Epoch)) {
		t.Errorf("finished as %+v after %d appends, with the log %q", *j.Finish, j.Appends, j.Log)
	}
}
