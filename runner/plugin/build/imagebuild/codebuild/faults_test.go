package codebuild_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuildtest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// text is a log that several goroutines may use.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

const small = "FROM scratch\nCOPY Dockerfile /Dockerfile\n"

// request returns a request to build the Dockerfile.
func request(t *testing.T, dockerfile string) (imagebuild.Request, *text) {
	t.Helper()
	log := &text{}
	return imagebuild.Request{Context: imagebuildtest.Context(t, map[string]string{"Dockerfile": dockerfile}), Dockerfile: "Dockerfile", Log: log}, log
}

// objects returns the keys of all objects of the test.
func (c *cloud) objects() (keys []string) {
	c.t.Helper()
	out, err := c.s3.ListObjectsV2(c.t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String("builds/" + c.t.Name() + "/")})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, o := range out.Contents {
		keys = append(keys, *o.Key)
	}
	return keys
}

// waiting is a Dockerfile whose build ends when it is stopped.
const waiting = "FROM scratch\nCOPY probe /probe\nRUN [\"/probe\", \"wait\", \"here\"]\n"

// Each failure has a reason and tells what to do. No failure leaves objects in the bucket or a build that runs.
func TestFailuresHaveReasonAndAdvice(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	refuse := func(operation string, status int, code string) func(*cloud) {
		return func(c *cloud) {
			c.service.Refuse(func(op string, _ int) (int, string) {
				if op == operation {
					return status, code
				}
				return 0, ""
			})
		}
	}
	// during makes f run once the program of the build runs.
	during := func(f func(*codebuildtest.Service)) func(*cloud) {
		return func(c *cloud) { c.during = f }
	}
	of := func(method, object string) func(*cloud) {
		return func(c *cloud) {
			c.refuse = func(r *http.Request) bool { return r.Method == method && strings.HasSuffix(r.URL.Path, object) }
		}
	}
	for name, tt := range map[string]struct {
		project    func(*codebuildtest.Project)
		fault      func(*cloud)
		config     func(*codebuild.Config)
		dockerfile string
		reason     fairlead.Reason
		says       string
	}{
		"the project is missing": {project: func(p *codebuildtest.Project) { p.Name = "other" }, reason: fairlead.ReasonBuilderUnavailable, says: "deploy the control plane's stack with its build runner"},
		"no permission":          {fault: refuse("StartBuild", 400, "AccessDeniedException"), reason: fairlead.ReasonBuilderUnavailable, says: "The builder role of the control plane's stack"},
		"throttled":              {fault: refuse("StartBuild", 400, "ThrottlingException"), config: quick, reason: fairlead.ReasonBuilderUnavailable, says: "AWS limits the requests"},
		"no slot becomes free":   {fault: refuse("StartBuild", 400, "AccountLimitExceededException"), config: quick, reason: fairlead.ReasonBuilderUnavailable, says: "quota of concurrent builds"},
		"the access has expired": {fault: refuse("BatchGetBuilds", 400, "ExpiredTokenException"), reason: fairlead.ReasonBuilderUnavailable, says: "took longer than an hour"},
		"the access expired before the start": {config: func(c *codebuild.Config) { c.Access.ExpiresAt = time.Now().Add(-time.Second) }, reason: fairlead.ReasonBuilderUnavailable,
			says: "before the build started"},
		"too long in the queue":      {fault: func(c *cloud) { c.service.Queue = true; c.during = (*codebuildtest.Service).EndQueued }, reason: fairlead.ReasonBuilderUnavailable, says: "Raise the quota"},
		"the machine does not start": {fault: func(c *cloud) { c.service.Provision = "Unable to pull customer's container image" }, reason: fairlead.ReasonBuilderUnavailable, says: "in its phase PROVISIONING: BUILD_CONTAINER_UNABLE_TO_PULL_IMAGE Unable to pull"},
		"no privileged mode":         {project: func(p *codebuildtest.Project) { p.Environment.PrivilegedMode = false }, reason: fairlead.ReasonBuilderUnavailable, says: "docker buildx create"},
		"a person stops the build":   {dockerfile: waiting, fault: during((*codebuildtest.Service).Stop), reason: fairlead.ReasonBuilderUnavailable, says: "Find out who stopped it"},
		"the build takes too long":   {dockerfile: waiting, fault: during((*codebuildtest.Service).TimeOut), reason: fairlead.ReasonBuildFailed, says: "imageBuildSize"},
		"the build vanishes":         {dockerfile: waiting, fault: during((*codebuildtest.Service).Forget), reason: fairlead.ReasonBuilderUnavailable, says: "it was deleted"},
		"the context is refused":     {fault: of(http.MethodPut, "/context.tar.gz"), reason: fairlead.ReasonBuilderUnavailable, says: "cannot upload the build context"},
		"the build gets no context":  {fault: of(http.MethodGet, "/context.tar.gz"), reason: fairlead.ReasonBuilderUnavailable, says: "could not be prepared"},
		"the build finds no heartbeat": {dockerfile: waiting, fault: of(http.MethodGet, "/heartbeat"), config: func(c *codebuild.Config) { c.Renew = 100 * time.Millisecond },
			reason: fairlead.ReasonBuilderUnavailable, says: "no new heartbeat of this step"},
		"no heartbeat can be stored":  {fault: of(http.MethodPut, "/heartbeat"), reason: fairlead.ReasonBuilderUnavailable, says: "cannot store the heartbeat"},
		"the build stores no image":   {fault: of(http.MethodPut, "/layout.tar"), reason: fairlead.ReasonBuilderUnavailable, says: "cannot store the image"},
		"the image cannot be fetched": {fault: of(http.MethodGet, "/layout.tar"), reason: fairlead.ReasonBuilderUnavailable, says: "cannot fetch the image"},
		"the Dockerfile fails":        {dockerfile: "FROM scratch\nCOPY none /none\n", reason: fairlead.ReasonBuildFailed, says: "the image cannot be built"},
		"a socket in the context":     {config: nil, fault: func(c *cloud) { c.socket = true }, reason: fairlead.ReasonSourceInvalid, says: "remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, tt.project)
			if tt.fault != nil {
				tt.fault(c)
			}
			dockerfile := small
			if tt.dockerfile != "" {
				dockerfile = tt.dockerfile
			}
			r, log := request(t, dockerfile)
			if c.socket {
				listen(t, r.Context)
			}
			done := make(chan error, 1)
			go func() { done <- c.builder(tt.config).Build(t.Context(), r, t.TempDir()) }()
			err := c.await(done, log)
			e, ok := errors.AsType[*plugin.Error](err)
			if !ok || e.Reason != tt.reason || !strings.Contains(e.Message, tt.says) {
				t.Errorf("the error is %v (%s), want %s with %q\n%s", err, plugin.ReasonOf(err), tt.reason, tt.says, log)
			}
			if err != nil && (strings.Contains(err.Error(), "X-Amz-") || strings.Contains(log.String(), "X-Amz-")) {
				t.Errorf("the error or the log has a signed URL: %v\n%s", err, log)
			}
			if left := c.objects(); len(left) > 0 {
				t.Errorf("the build leaves %q", left)
			}
			if slices.Contains(c.service.Statuses(), "IN_PROGRESS") {
				t.Error("the build still runs")
			}
		})
	}
}

func quick(c *codebuild.Config) { c.Within = 500 * time.Millisecond }

// CodeBuild answers a second time after a lost answer, and an agent's network fails for moments. One build comes out.
func TestOneBuildInSpiteOfLostAnswers(t *testing.T) {
	c := newCloud(t, nil)
	c.service.Lose(func(_ string, n int) bool { return n == 1 })
	r, log := request(t, small)
	dir := t.TempDir()
	if err := c.builder(nil).Build(t.Context(), r, dir); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if n := len(imagebuildtest.Images(t, dir)); n != 1 {
		t.Errorf("%d images", n)
	}
	if got := c.service.Statuses(); !slices.Equal(got, []string{"SUCCEEDED"}) {
		t.Errorf("the builds are %q, want one", got)
	}
	if left := c.objects(); len(left) > 0 {
		t.Errorf("the build leaves %q", left)
	}
}

// A build that finds no slot waits for one and reports it in the log.
func TestBuildWaitsForSlot(t *testing.T) {
	c := newCloud(t, func(p *codebuildtest.Project) { p.ConcurrentBuildLimit = 1 })
	first, log := request(t, waiting)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.builder(nil).Build(ctx, first, t.TempDir()) }()
	until(t, "the first build runs", func() bool { return strings.Contains(log.String(), "working here") })
	second, waits := request(t, small)
	other := make(chan error, 1)
	go func() { other <- c.builder(nil).Build(t.Context(), second, t.TempDir()) }()
	until(t, "the second build waits", func() bool { return strings.Contains(waits.String(), "runs as many builds as it may") })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the first build: %v", err)
	}
	if err := <-other; err != nil {
		t.Errorf("the second build: %v\n%s", err, waits)
	}
	if got := c.service.Statuses(); !slices.Equal(got, []string{"STOPPED", "SUCCEEDED"}) {
		t.Errorf("the builds are %q", got)
	}
}

// The request to start a build overrides nothing but four variables and the name of the log: the role of builds permits no
// other commands, and a test must notice a field that needs a wider role.
func TestStartOverridesOnlyVariablesAndLog(t *testing.T) {
	c := newCloud(t, nil)
	r, log := request(t, small)
	if err := c.builder(nil).Build(t.Context(), r, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	var in map[string]any
	if err := json.Unmarshal([]byte(c.service.Requests()[0].Body), &in); err != nil {
		t.Fatal(err)
	}
	want := []string{"environmentVariablesOverride", "idempotencyToken", "logsConfigOverride", "projectName"}
	if got := slices.Sorted(maps.Keys(in)); !slices.Equal(got, want) {
		t.Errorf("StartBuild has the fields %q, want %q", got, want)
	}
	for _, v := range in["environmentVariablesOverride"].([]any) {
		v := v.(map[string]any)
		if name := v["name"]; name == "FAIRLEAD_HEARTBEAT_SECONDS" && v["value"] == "300" {
			continue
		} else if name != "FAIRLEAD_CONTEXT_URL" && name != "FAIRLEAD_LAYOUT_URL" && name != "FAIRLEAD_HEARTBEAT_URL" || !strings.Contains(v["value"].(string), "X-Amz-Expires=3") {
			t.Errorf("the build gets %v", v)
		}
	}
}

// dying is a network that breaks for ever at a moment, as for a step that is killed.
type dying struct {
	inner http.RoundTripper
	dead  atomic.Bool
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.dead.Load() {
		return nil, errors.New("the step is dead")
	}
	return d.inner.RoundTrip(r)
}

// left starts a build whose step dies, and returns the prefix of its objects.
func (c *cloud) left(change func(*codebuild.Config)) (prefix string) {
	c.t.Helper()
	r, log := request(c.t, waiting)
	network := &dying{inner: c.client.Transport}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	first := c.builder(func(cfg *codebuild.Config) {
		cfg.HTTP, cfg.Within, prefix = &http.Client{Transport: network}, 200*time.Millisecond, cfg.Access.Prefix
		change(cfg)
	})
	done := make(chan error, 1)
	go func() { done <- first.Build(ctx, r, c.t.TempDir()) }()
	until(c.t, "the first build runs", func() bool { return strings.Contains(log.String(), "working here") })
	network.dead.Store(true)
	cancel()
	<-done
	if got := c.service.Statuses(); !slices.Equal(got, []string{"IN_PROGRESS"}) {
		c.t.Fatalf("the builds are %q, want one that runs", got)
	}
	return prefix
}

// A step that dies leaves its build. The job's next attempt stops it, and builds itself.
func TestNextAttemptStopsTheBuildOfADeadStep(t *testing.T) {
	c := newCloud(t, nil)
	prefix := c.left(func(*codebuild.Config) {})
	next, own := request(t, small)
	dir := t.TempDir()
	second := c.builder(func(cfg *codebuild.Config) {
		cfg.Access.Prefix = strings.TrimSuffix(prefix, "/1/") + "/2/"
	})
	if err := second.Build(t.Context(), next, dir); err != nil {
		t.Fatalf("%v\n%s", err, own)
	}
	if got := c.service.Statuses(); !slices.Equal(got, []string{"STOPPED", "SUCCEEDED"}) || !strings.Contains(own.String(), "of an earlier attempt of this job") {
		t.Errorf("the builds are %q\n%s", got, own)
	}
}

// heartbeats is the pause between two heartbeats. A build may miss them for five times as long.
const heartbeats = 600 * time.Millisecond

// A job without a next attempt leaves its build, too. The build ends itself, because it finds no new heartbeat.
func TestBuildOfADeadStepEndsItself(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	c := newCloud(t, nil)
	c.left(func(cfg *codebuild.Config) { cfg.Renew = heartbeats })
	until(t, "the build has ended", func() bool { return slices.Equal(c.service.Statuses(), []string{"FAILED"}) })
	stopped := func(r codebuildtest.Request) bool { return r.Operation == "StopBuild" }
	if slices.ContainsFunc(c.service.Requests(), stopped) {
		t.Error("something stopped the build")
	}
}

// A build runs for longer than its limit while its step renews the heartbeat.
func TestHeartbeatKeepsABuildRunning(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	c := newCloud(t, nil)
	var beats atomic.Int64
	c.refuse = func(r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/heartbeat") {
			beats.Add(1)
		}
		return false
	}
	r, log := request(t, waiting)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- c.builder(func(cfg *codebuild.Config) { cfg.Renew = heartbeats }).Build(ctx, r, t.TempDir())
	}()
	until(t, "the build runs", func() bool { return strings.Contains(log.String(), "working here") })
	before := beats.Load()
	until(t, "the step renewed the heartbeat for longer than the limit", func() bool { return beats.Load() >= before+8 })
	if got := c.service.Statuses(); !slices.Equal(got, []string{"IN_PROGRESS"}) {
		t.Errorf("the builds are %q, want one that runs\n%s", got, log)
	}
	cancel()
	<-done
	at := beats.Load()
	if left := c.objects(); len(left) > 0 || beats.Load() != at {
		t.Errorf("the build leaves %q", left)
	}
}

// older removes from the request to start a build what a step of an earlier release does not send.
type older struct{ inner http.RoundTripper }

func (o older) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".StartBuild") {
		return o.inner.RoundTrip(r)
	}
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	in["environmentVariablesOverride"] = slices.DeleteFunc(in["environmentVariablesOverride"].([]any), func(v any) bool {
		return strings.HasPrefix(v.(map[string]any)["name"].(string), "FAIRLEAD_HEARTBEAT_")
	})
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return o.inner.RoundTrip(r)
}

// The project of a new stack also serves a build runner of an earlier release.
func TestBuildOfAStepWithoutHeartbeatsEnds(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	c := newCloud(t, nil)
	r, log := request(t, small)
	err := c.builder(func(cfg *codebuild.Config) { cfg.HTTP = &http.Client{Transport: older{c.client.Transport}} }).Build(t.Context(), r, t.TempDir())
	if err != nil || !slices.Equal(c.service.Statuses(), []string{"SUCCEEDED"}) || strings.Contains(c.service.Requests()[0].Body, "HEARTBEAT") {
		t.Errorf("%v, and the builds are %q\n%s", err, c.service.Statuses(), log)
	}
}
