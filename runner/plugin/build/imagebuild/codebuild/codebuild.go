// Package codebuild builds images in AWS CodeBuild, in the control plane's account. A build there has no right to push, and
// its role has no right in S3: the step gives the build one URL to read its context, one to write its layout, and one to read
// the heartbeat of the step. The step then takes the layout, and pushes it elsewhere. A build whose step has died ends itself,
// because the heartbeat stays the same.
//
// The package signs its requests itself. It makes three calls to CodeBuild, one to CloudWatch Logs and three to S3. The
// clients of these services would delay the start of every step, also of those that build nothing.
//
// An attempt has these objects in S3, below its prefix; N counts its builds:
//
//	build              the ID of the build that it has started, with which the job's next attempt stops it
//	N/context.tar.gz   the folder context, and the file arguments with the arguments of docker buildx build
//	N/layout.tar       the image layout of OCI, which the build writes
//	N/heartbeat        a number, which the step raises while it lives
package codebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
)

// The environment variables that the step gives to the build. The project's buildspec reads them.
const (
	contextVariable   = "FAIRLEAD_CONTEXT_URL"
	layoutVariable    = "FAIRLEAD_LAYOUT_URL"
	heartbeatVariable = "FAIRLEAD_HEARTBEAT_URL"
	limitVariable     = "FAIRLEAD_HEARTBEAT_SECONDS" // after which a build without a new heartbeat ends itself
)

const (
	// lookEvery is the pause between two looks at a build. CodeBuild permits few requests a second in an account.
	lookEvery = 3 * time.Second
	// callWithin bounds one call with its repetitions. CodeBuild and S3 answer within a second, except when they throttle.
	callWithin = 2 * time.Minute
	// slotWaits is how many times as long as a call a build waits for a slot, if the account or the project has none.
	slotWaits = 5
	// endWithin bounds what follows a cancellation: the stop of the build, and the removal of its objects.
	endWithin = 20 * time.Second
	// renewEvery is the pause between two heartbeats.
	renewEvery = time.Minute
	// missedHeartbeats is how many heartbeats in a row may be missing before a build ends itself.
	missedHeartbeats = 5
	// unknownLooks is how many times in a row CodeBuild may not know a build that it has started.
	unknownLooks = 10
)

// Config configures a Builder for one attempt of a job.
type Config struct {
	Access  wire.ImageBuildAccess
	Attempt string           // names the job and its epoch
	HTTP    *http.Client     // for all requests
	Now     func() time.Time // for signatures
	Random  func() float64   // in [0, 1), varies pauses; nil: math/rand
	Every   time.Duration    // pause between two looks at the build; 0: a few seconds
	Renew   time.Duration    // pause between two heartbeats; 0: a minute
	Within  time.Duration    // limit of one call with its repetitions; 0: two minutes
}

// Builder implements imagebuild.Builder.
type Builder struct {
	cfg    Config
	aws    caller
	builds atomic.Int64 // that this Builder has begun
}

var _ imagebuild.Builder = (*Builder)(nil)

// New returns a Builder. It sends no request.
func New(cfg Config) *Builder {
	if cfg.Every == 0 {
		cfg.Every = lookEvery
	}
	if cfg.Within == 0 {
		cfg.Within = callWithin
	}
	if cfg.Renew == 0 {
		cfg.Renew = renewEvery
	}
	return &Builder{cfg: cfg, aws: newCaller(cfg)}
}

// Build implements imagebuild.Builder.
func (b *Builder) Build(ctx context.Context, r imagebuild.Request, layout string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	j := b.newJob(r.Log)
	if err := j.stopEarlier(ctx); err != nil {
		return ended(ctx, err)
	}
	defer j.remove(ctx)
	if err := j.sendContext(ctx, r, filepath.Dir(layout)); err != nil {
		return ended(ctx, err)
	}
	end, err := j.live(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	defer end()
	if err := j.start(ctx); err != nil {
		if ctx.Err() != nil { // the request to start it may have arrived
			j.stop(ctx)
		}
		return ended(ctx, err)
	}
	if err := j.record(ctx); err != nil {
		j.stop(ctx)
		return ended(ctx, err)
	}
	if err := j.follow(ctx); err != nil {
		if !j.over {
			j.stop(ctx)
		}
		return ended(ctx, err)
	}
	return ended(ctx, j.takeLayout(ctx, layout))
}

// ended returns the error of ctx, if ctx has ended, and else err.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("build the image: %w", ctx.Err())
	}
	return err
}

// job is one build.
type job struct {
	*Builder
	log             io.Writer
	token           string // the same for each repetition of the request to start the build
	context, layout string // keys in S3
	heartbeat       string // key in S3
	request         startBuild
	id              string // of the build in CodeBuild; "": not known
	over            bool   // CodeBuild has ended the build
	lines           logReader
}

func (b *Builder) newJob(log io.Writer) *job {
	n := strconv.FormatInt(b.builds.Add(1), 10)
	prefix := b.cfg.Access.Prefix + n + "/"
	return &job{Builder: b, log: log, token: b.cfg.Attempt + "-" + n, context: prefix + "context.tar.gz", layout: prefix + "layout.tar", heartbeat: prefix + "heartbeat"}
}

// live stores the first heartbeat, and renews it until the returned function is called. If a heartbeat cannot be stored, the
// next one may be.
func (j *job) live(ctx context.Context) (end func(), err error) {
	beat := func(ctx context.Context, n int) error { return j.aws.put(ctx, j.heartbeat, []byte(strconv.Itoa(n))) }
	if err := beat(ctx, 0); err != nil {
		return nil, failure("store the heartbeat of the step", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var renews sync.WaitGroup
	renews.Go(func() {
		for n := 1; retry.Sleep(ctx, j.cfg.Renew) == nil; n++ {
			_ = beat(ctx, n) // the build ends itself if too many are missing
		}
	})
	return func() { cancel(); renews.Wait() }, nil
}

// heartbeatLimit returns the seconds after which a build without a new heartbeat ends itself.
func (j *job) heartbeatLimit() string {
	return strconv.Itoa(int(max(time.Second, missedHeartbeats*j.cfg.Renew).Seconds()))
}

// sendContext packs the context into a file in the folder work, and uploads it.
func (j *job) sendContext(ctx context.Context, r imagebuild.Request, work string) error {
	f, err := os.CreateTemp(work, "context-*.tar.gz")
	if err != nil {
		return fmt.Errorf("pack the build context: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }() // what remains is removed with the workspace
	if err := pack(ctx, f, r); err != nil {
		return err
	}
	return failure("upload the build context", j.aws.upload(ctx, j.context, f))
}

// startBuild is the request to start a build. It overrides only the environment and the name of the log's stream.
type startBuild struct {
	ProjectName                  string        `json:"projectName"`
	IdempotencyToken             string        `json:"idempotencyToken"`
	EnvironmentVariablesOverride []variable    `json:"environmentVariablesOverride"`
	LogsConfigOverride           logsConfigure `json:"logsConfigOverride"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Type  string `json:"type"`
}

type logsConfigure struct {
	CloudWatchLogs cloudWatchLogs `json:"cloudWatchLogs"`
}

type cloudWatchLogs struct {
	Status     string `json:"status"`
	GroupName  string `json:"groupName"`
	StreamName string `json:"streamName"`
}

// build is what CodeBuild reports of a build.
type build struct {
	ID            string `json:"id"`
	BuildStatus   string `json:"buildStatus"`
	BuildComplete bool   `json:"buildComplete"`
	CurrentPhase  string `json:"currentPhase"`
	Phases        []struct {
		PhaseType   string `json:"phaseType"`
		PhaseStatus string `json:"phaseStatus"`
		Contexts    []struct {
			StatusCode string `json:"statusCode"`
			Message    string `json:"message"`
		} `json:"contexts"`
	} `json:"phases"`
	Logs struct {
		GroupName  string `json:"groupName"`
		StreamName string `json:"streamName"`
	} `json:"logs"`
}

// newRequest returns the request to start the build. Each repetition must have the same bytes, or CodeBuild refuses the token.
func (j *job) newRequest(ctx context.Context) (startBuild, error) {
	a := j.cfg.Access
	from, err := j.aws.presign(ctx, http.MethodGet, j.context)
	if err != nil {
		return startBuild{}, err
	}
	to, err := j.aws.presign(ctx, http.MethodPut, j.layout)
	if err != nil {
		return startBuild{}, err
	}
	heartbeat, err := j.aws.presign(ctx, http.MethodGet, j.heartbeat)
	if err != nil {
		return startBuild{}, err
	}
	return startBuild{ProjectName: a.Project, IdempotencyToken: j.token,
		EnvironmentVariablesOverride: []variable{{contextVariable, from, "PLAINTEXT"}, {layoutVariable, to, "PLAINTEXT"},
			{heartbeatVariable, heartbeat, "PLAINTEXT"}, {limitVariable, j.heartbeatLimit(), "PLAINTEXT"}},
		LogsConfigOverride: logsConfigure{cloudWatchLogs{"ENABLED", a.LogGroup, a.LogStream}},
	}, nil
}

// start starts the build, and waits for a slot if there is none. A repeated request finds the build that the first one
// started, because both have the same token.
func (j *job) start(ctx context.Context) error {
	in, err := j.newRequest(ctx)
	if err != nil {
		return err
	}
	j.request = in
	within, waited := slotWaits*j.cfg.Within, false
	return retry.Run(ctx, retry.Policy{First: j.cfg.Every, Longest: 30 * time.Second, Within: within, Random: j.cfg.Random, Passing: noSlot}, func(ctx context.Context) error {
		err := failure("start the build", j.startOnce(ctx))
		if noSlot(err) && !waited {
			waited = true
			fmt.Fprintf(j.log, "[fairlead: AWS CodeBuild runs as many builds as it may; waiting for up to %s]\n", within)
		}
		return err
	})
}

func (j *job) startOnce(ctx context.Context) error {
	var out struct{ Build build }
	if err := j.aws.codebuild(ctx, "StartBuild", j.request, &out); err != nil {
		return err
	}
	if out.Build.ID == "" {
		return errors.New("the answer names no build")
	}
	j.id = out.Build.ID
	return nil
}

// recordKey is the last part of the key of the object with the ID of an attempt's build.
const recordKey = "build"

// earlierAttempts is how many attempts of the job before this one may have a build that still runs.
const earlierAttempts = 5

// record stores the ID of the build, so that the job's next attempt can stop it if this step dies.
func (j *job) record(ctx context.Context) error {
	return failure("store the ID of the build", j.aws.put(ctx, j.cfg.Access.Prefix+recordKey, []byte(j.id)))
}

// stopEarlier stops the builds of the job's earlier attempts, whose steps have died.
func (j *job) stopEarlier(ctx context.Context) error {
	before, own := path.Split(strings.TrimSuffix(j.cfg.Access.Prefix, "/"))
	epoch, err := strconv.Atoi(own)
	if err != nil {
		return fmt.Errorf("the prefix %s of the objects ends with no epoch: %w", j.cfg.Access.Prefix, err)
	}
	for e := epoch - 1; e >= max(1, epoch-earlierAttempts); e-- {
		id, err := j.aws.get(ctx, before+strconv.Itoa(e)+"/"+recordKey)
		if r, ok := errors.AsType[*refusal](err); ok && (r.status == http.StatusNotFound || r.status == http.StatusForbidden) {
			continue // the attempt started none; S3 tells a caller who may not list objects that it may not read a missing one
		}
		if err != nil {
			return failure("look for a build of an earlier attempt", err)
		}
		if !strings.HasPrefix(id, j.cfg.Access.Project+":") {
			continue
		}
		earlier := &job{Builder: j.Builder, log: j.log, id: id}
		if b, err := earlier.look(ctx); err == nil && b.ID != "" && !b.BuildComplete {
			fmt.Fprintf(j.log, "[fairlead: stopping the build %s of an earlier attempt of this job]\n", id)
			earlier.stop(ctx)
		}
	}
	return nil
}

// follow copies the log of the build until its end. It returns an error unless the build succeeded.
func (j *job) follow(ctx context.Context) error {
	for unknown := 0; ; {
		b, err := j.look(ctx)
		switch {
		case err != nil:
			return err
		case b.ID == "": // a build is not known everywhere at once
			if unknown++; unknown >= unknownLooks {
				return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "AWS CodeBuild no longer knows the build %s of project %s: it was deleted. Publish the app again", j.id, j.cfg.Access.Project)
			}
		default:
			unknown = 0
			if _, err := j.copyLog(ctx, b); err != nil {
				return err
			}
		}
		if b.BuildComplete {
			j.over = true
			if err := j.restOfLog(ctx, b); err != nil {
				return err
			}
			return outcome(b)
		}
		if err := retry.Sleep(ctx, j.cfg.Every); err != nil {
			return err
		}
	}
}

// look returns the build as it is now. The build has no ID if CodeBuild does not know it.
func (j *job) look(ctx context.Context) (build, error) {
	var out struct{ Builds []build }
	err := j.aws.codebuild(ctx, "BatchGetBuilds", map[string][]string{"ids": {j.id}}, &out)
	if err != nil {
		return build{}, failure("look at the build", err)
	}
	if len(out.Builds) == 0 {
		return build{}, nil
	}
	return out.Builds[0], nil
}

// stop stops the build and waits until it has ended. ctx may have ended already. If CodeBuild does not answer, the
// project's timeout ends the build.
func (j *job) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if j.id == "" && j.startOnce(ctx) != nil { // it returns the build that was started, if there is one
		return
	}
	if err := j.aws.codebuild(ctx, "StopBuild", map[string]string{"id": j.id}, nil); err != nil {
		fmt.Fprintf(j.log, "[fairlead: the build %s was not stopped; it ends with the timeout of its project: %v]\n", j.id, err)
		return
	}
	for {
		b, err := j.look(ctx)
		if err != nil || b.BuildComplete || retry.Sleep(ctx, j.cfg.Every) != nil {
			return
		}
	}
}

// takeLayout unpacks the layout that the build wrote into the folder.
func (j *job) takeLayout(ctx context.Context, folder string) error {
	body, err := j.aws.download(ctx, j.layout)
	if err != nil {
		return failure("fetch the image", err)
	}
	defer body.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("unpack the image: %w", err)
	}
	defer root.Close()
	return unpack(body, root)
}

// remove removes the objects of the build. The bucket's lifecycle removes what remains.
func (j *job) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	for _, key := range []string{j.context, j.layout, j.heartbeat, j.cfg.Access.Prefix + recordKey} {
		if err := j.aws.remove(ctx, key); err != nil {
			fmt.Fprintf(j.log, "[fairlead: an object of the build was not deleted; S3 deletes it within two days: %v]\n", err)
			return
		}
	}
}

// outcome returns nil if the build succeeded, and else why it did not.
func outcome(b build) error {
	phase, whole := failedPhase(b)
	why := fairlead.Clip(whole, maxReason)
	switch b.BuildStatus {
	case "SUCCEEDED":
		return nil
	case "STOPPED":
		return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "the build %s was stopped in AWS CodeBuild. Find out who stopped it in the account's CloudTrail, then publish the app again", b.ID)
	case "TIMED_OUT":
		if phase == "QUEUED" || phase == "" && b.CurrentPhase == "QUEUED" {
			return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "the build %s waited for too long in the queue of AWS CodeBuild. Raise the quota of concurrent builds of the control plane's account, or publish the app again later", b.ID)
		}
		return plugin.Errorf(fairlead.ReasonBuildFailed, "the image was not built within the time that the project of AWS CodeBuild permits. Make the Dockerfile faster, or build on a larger machine: imageBuildSize of the control plane's stack")
	}
	switch phase {
	case "BUILD":
		if strings.HasSuffix(whole, noHeartbeat) {
			return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "the build %s in AWS CodeBuild ended itself, because it found no new heartbeat of this step for too long. Check the network of the build runner, then publish the app again", b.ID)
		}
		if i := strings.LastIndex(whole, reasonMark); i >= 0 { // the command before it is always that of the project
			why = fairlead.Clip(whole[i+len(reasonMark):], maxReason)
		}
		return plugin.Errorf(fairlead.ReasonBuildFailed, "the image cannot be built: %s. The log has the output of the build", why)
	case "PRE_BUILD":
		return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "the build %s of AWS CodeBuild could not be prepared: %s. The log has the output. Publish the app again; if BuildKit's image cannot be fetched, set imageBuildKit of the control plane's stack to a copy of it", b.ID, why)
	case "POST_BUILD":
		return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "the build %s of AWS CodeBuild cannot store the image: %s. An image may have up to 5 GB", b.ID, why)
	}
	return plugin.Errorf(fairlead.ReasonBuilderUnavailable, "AWS CodeBuild failed to run the build %s in its phase %s: %s. Publish the app again; if it fails again, look at the build in the console of the control plane's account", b.ID, phase, why)
}

// noHeartbeat ends the message of a build that ended itself. The project's buildspec has the status.
const noHeartbeat = "exit status 75"

// reasonMark separates the command from its end in a message of CodeBuild.
const reasonMark = ". Reason: "

// failedPhase returns the first phase of the build that did not succeed, and its message.
func failedPhase(b build) (phase, why string) {
	for _, p := range b.Phases {
		if p.PhaseStatus == "" || p.PhaseStatus == "SUCCEEDED" || p.PhaseStatus == "IN_PROGRESS" {
			continue
		}
		var texts []string
		for _, c := range p.Contexts {
			if text := strings.TrimSpace(strings.Join(strings.Fields(c.StatusCode+" "+c.Message), " ")); text != "" {
				texts = append(texts, text)
			}
		}
		if why = strings.Join(texts, "; "); why == "" {
			why = "its phase " + p.PhaseType + " ended as " + p.PhaseStatus
		}
		return p.PhaseType, why
	}
	return "", "it names no reason"
}

// maxReason limits what a message has of a text of AWS, in bytes.
const maxReason = 500
