// Package ecs runs each step as a task of Amazon ECS, on Fargate or EC2. A step
// shares no folder with its agent: it gets its input and its launch token as
// environment variables of its container, and reports directly to the control
// plane. The agent only sees how the task ended.
//
// RunTask has no secret fields: a user who may describe the cluster's tasks can
// read the launch token, and so can a rule of the account's event bus. The token
// is valid once, and only as long as its claim. In a customer's stack the agent
// also binds it to the role of the task (see package bound). Elsewhere, only the
// runner should have the permission to describe the tasks of this cluster.
//
// A step in an image of its own needs a task definition of this image, because RunTask cannot
// replace an image. The configuration names it (image_definitions). A first container of the
// runner's image, CopyContainer, copies the runner's program to a volume. The step's container
// runs it from there.
//
// ECS deletes its record of a task about an hour after the task's end. The
// driver stores the ARN of an attempt's task in the step's folder.
package ecs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/executor"
)

// Container is the name of the job's container in the task definition.
const Container = "step"

// CopyContainer is the name of the container that copies the runner's program, in the task of a
// step in an image of its own.
const CopyContainer = "copy"

const (
	// killFor bounds Kill: ECS sends SIGKILL after the container's stop timeout,
	// which is at most 2 minutes on Fargate.
	killFor = 150 * time.Second
	// ask bounds one request that is not part of a launch.
	ask = 10 * time.Second
	// maxOverrides is the longest JSON of a task's overrides that ECS accepts, in
	// characters.
	maxOverrides = 8192
	// recordFile, in a step's folder, holds the ARN of its task.
	recordFile = "ecs-task"
	// defaultEvery is the interval between descriptions of all tasks, in one
	// request. The agent must see a dead step within two seconds.
	defaultEvery = 2 * time.Second
	// unknownFor is how long ECS may report that it does not know a task which it
	// has started. The API of ECS is eventually consistent. Its documentation says
	// that the delay is seconds, and advises to wait for minutes.
	unknownFor = 2 * time.Minute
)

// Options of New.
type Options struct {
	Job        runnerspec.ECSJob // if it names no task definition, the driver registers one with the other settings of Job
	Steps      string            // folder of the steps' folders, which the caller creates; absolute
	Runner     string            // id of the runner, for a tag
	AWS        aws.Config
	Every      time.Duration // interval between descriptions of all tasks; 0: 2 s
	UnknownFor time.Duration // how long ECS may not know a task that it has started; 0: 2 minutes
}

// Executor starts steps as tasks. Safe for concurrent use.
type Executor struct {
	o       Options
	api     *ecs.Client
	logs    *cloudwatchlogs.Client
	tags    []types.Tag
	watcher *watcher

	making sync.Mutex
	made   string // ARN of the task definition that was registered or found
}

// New returns an Executor. It sends no request: the first step shows whether the
// cluster exists.
func New(o Options) (*Executor, error) {
	if !filepath.IsAbs(o.Steps) {
		panic("ecs.New: needs an absolute path")
	}
	j := &o.Job
	j.LogPrefix = cmp.Or(j.LogPrefix, "step")
	j.Data = cmp.Or(j.Data, "/var/lib/fairlead-runner")
	j.StartTimeout = cmp.Or(j.StartTimeout, runnerspec.Duration(5*time.Minute))
	if j.PassEnv == nil {
		j.PassEnv = []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "ECS_CONTAINER_METADATA_URI_V4"}
	}
	for _, must := range []struct {
		field string
		there bool
	}{
		{"job.cluster", j.Cluster != ""}, {"job.subnets", len(j.Subnets) > 0},
		{"job.task_definition (or job.image)", j.TaskDefinition != "" || j.Image != ""},
		{"job.execution_role_arn", j.TaskDefinition != "" || j.ExecutionRoleARN != ""},
	} {
		if !must.there {
			return nil, executor.Incomplete(must.field)
		}
	}
	if o.AWS.Region = cmp.Or(j.Region, o.AWS.Region); o.AWS.Region == "" {
		return nil, fmt.Errorf("%w, and AWS_REGION is not set", executor.Incomplete("job.region"))
	}
	e := &Executor{tags: []types.Tag{{Key: aws.String("fairlead:runner"), Value: aws.String(o.Runner)}}}
	for _, name := range slices.Sorted(maps.Keys(j.Labels)) {
		e.tags = append(e.tags, types.Tag{Key: aws.String(name), Value: aws.String(j.Labels[name])})
	}
	// The SDK does not retry: executor.Retry decides how often and how long.
	once := func() aws.Retryer { return retry.AddWithMaxAttempts(retry.NewStandard(), 1) }
	e.api = ecs.NewFromConfig(o.AWS, func(eo *ecs.Options) { eo.Retryer = once() })
	e.logs = cloudwatchlogs.NewFromConfig(o.AWS)
	o.Every, o.UnknownFor = cmp.Or(o.Every, defaultEvery), cmp.Or(o.UnknownFor, unknownFor)
	e.watcher = &watcher{api: e.api, cluster: j.Cluster, every: o.Every}
	e.o = o
	return e, nil
}

// Place is the disk of a task. The agent and other tasks cannot access it.
func (e *Executor) Place() executor.Place {
	return executor.Place{Data: e.o.Job.Data, StartsAhead: true, OwnImages: true, PassEnv: e.o.Job.PassEnv, KillFor: killFor, Holds: func(s executor.Step) error {
		_, err := e.overrides(s)
		return err
	}}
}

// token returns the client token of an attempt. With it, repeated RunTask
// requests start only one task.
func token(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// Start runs a task.
func (e *Executor) Start(ctx context.Context, s executor.Step) (executor.Handle, error) {
	in, err := e.request(s)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	definition, err := e.definitionOf(s.Image)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	if s.Image == "" {
		if definition, err = executor.Retry(ctx, passing, e.definition); err != nil {
			return nil, fmt.Errorf("register the task definition of step %s: %w", s.ID, reason(err))
		}
	}
	in.TaskDefinition = &definition
	unclear := false
	arn, err := executor.Retry(ctx, passing, func(ctx context.Context) (string, error) {
		out, err := e.api.RunTask(ctx, in)
		unclear = unclear || err != nil && passing(err) && !executor.NeverSent(err)
		if err != nil {
			return "", err
		}
		if len(out.Tasks) == 0 {
			return "", refusal(out.Failures)
		}
		return aws.ToString(out.Tasks[0].TaskArn), nil
	})
	h := &handle{e: e, id: s.ID, since: time.Now(), request: in}
	switch {
	case err == nil:
		h.arn, h.seen = arn, h.since
		_ = e.keep(s.ID, arn) // without the record, the next agent finds a running task by its startedBy
		return h, nil
	case unclear && passing(err):
		// The task may run. A request with the same token finds or starts the task.
		// Wait repeats the request until ECS answers.
		return h, nil
	}
	return nil, fmt.Errorf("run a task for step %s: %w", s.ID, reason(err))
}

// Check gets the credentials of the next request, unless they are known.
func (e *Executor) Check(ctx context.Context) error {
	if e.o.AWS.Credentials == nil {
		return nil
	}
	if _, err := e.o.AWS.Credentials.Retrieve(ctx); err != nil {
		return fmt.Errorf("ECS cluster %s: get AWS credentials: %w", e.o.Job.Cluster, reason(err))
	}
	return nil
}

// reason returns the part of an error that a person needs. If the credentials were refused, ECS
// never got the request, so the names of the SDK's layers around the refusal would mislead.
func reason(err error) error {
	if refused, ok := errors.AsType[*executor.LaunchError](err); ok {
		return refused
	}
	return err
}

// secretive reports whether the name of a variable looks like the name of a
// secret. A variable whose name ends like that of a file or an address is not
// secret.
func secretive(variable string) bool {
	name, _, _ := strings.Cut(strings.ToUpper(variable), "=")
	for _, end := range []string{"_FILE", "_PATH", "_DIR", "_URI", "_URL"} {
		if strings.HasSuffix(name, end) {
			return false
		}
	}
	return slices.ContainsFunc([]string{"SECRET", "PASSWORD", "PASSWD", "TOKEN", "PRIVATE_KEY", "API_KEY", "CREDENTIAL"}, func(part string) bool { return strings.Contains(name, part) })
}

// noCapacity is ECS's refusal for lack of capacity. It is temporary: a retry may succeed.
type noCapacity struct{ reason string }

func (e *noCapacity) Error() string { return "ECS has no capacity for the task: " + e.reason }

// refusal returns why ECS accepted the request and started no task.
func refusal(fs []types.Failure) error {
	if len(fs) == 0 {
		return errors.New("ECS started no task and gave no reason")
	}
	return &noCapacity{strings.TrimSpace(aws.ToString(fs[0].Reason) + " " + aws.ToString(fs[0].Detail))}
}

// given returns nil for an empty value.
func given(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// overrides returns the settings that differ between steps. It refuses variables
// that look secret, and overrides that are too long for ECS.
func (e *Executor) overrides(s executor.Step) (*types.TaskOverride, error) {
	command := types.ContainerOverride{Name: aws.String(Container), Command: s.Args}
	if secret := slices.IndexFunc(s.Env, secretive); secret >= 0 {
		name, _, _ := strings.Cut(s.Env[secret], "=")
		return nil, &executor.LaunchError{Cause: fairlead.CauseLaunchFailed, Err: fmt.Errorf(
			"the variable %s looks like a secret, and users who may describe the task could read it: remove it from FAIRLEAD_PASS_ENV, and refer to it in the task definition", name)}
	}
	for _, v := range slices.Concat([]string{"HOME=/tmp"}, s.Env, s.Secrets) {
		name, value, _ := strings.Cut(v, "=")
		command.Environment = append(command.Environment, types.KeyValuePair{Name: &name, Value: &value})
	}
	if s.Input != nil {
		command.Environment = append(command.Environment, types.KeyValuePair{Name: aws.String(executor.InputVariable), Value: aws.String(string(s.Input))})
	}
	var environ []string
	for _, v := range command.Environment {
		environ = append(environ, *v.Name+"=")
	}
	for _, v := range executor.EnvironIn(s.Image, environ, slices.Concat(setByECS, e.o.Job.PassEnv, slices.Collect(maps.Keys(e.o.Job.Secrets)))) {
		name, value, _ := strings.Cut(v, "=")
		command.Environment = append(command.Environment, types.KeyValuePair{Name: &name, Value: &value})
	}
	overrides := &types.TaskOverride{ContainerOverrides: []types.ContainerOverride{command}}
	overrides.TaskRoleArn, overrides.ExecutionRoleArn = given(cmp.Or(s.Identity, e.o.Job.TaskRoleARN)), given(e.o.Job.ExecutionRoleARN)
	if cpu := cmp.Or(s.CPU, e.o.Job.CPU); cpu > 0 {
		overrides.Cpu = aws.String(units(cpu))
	}
	if memory := cmp.Or(s.Memory, e.o.Job.Memory); memory > 0 {
		overrides.Memory = aws.String(mebibytes(memory))
	}
	if s.Memory > 0 && e.o.Job.TaskDefinition == "" {
		// The container of the executor's own definition has limits of its own: a larger task would not
		// give it more, and ECS refuses a smaller one.
		container := &overrides.ContainerOverrides[0]
		container.Cpu, container.Memory = aws.Int32(int32(math.Round(float64(s.CPU)*1.024))), aws.Int32(int32(s.Memory.Mebibytes()))
	}
	if e.o.Job.Disk > 0 {
		overrides.EphemeralStorage = &types.EphemeralStorage{SizeInGiB: int32(e.o.Job.Disk >> 30)}
	}
	if b, err := json.Marshal(overrides); err != nil {
		return nil, err
	} else if len(b) > maxOverrides {
		return nil, &executor.LaunchError{Cause: fairlead.CauseLaunchFailed, Err: fmt.Errorf(
			"the task's overrides have %d characters, but ECS accepts at most %d: pass fewer variables (FAIRLEAD_PASS_ENV), or set them in the task definition", len(b), maxOverrides)}
	}
	return overrides, nil
}

// setByECS has the names of the variables that ECS sets in each container. In an image of a step's own, they are
// the step's own variables, and not those of the image: one has the address of the credentials of the task's role.
var setByECS = []string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_DEFAULT_REGION", "AWS_EXECUTION_ENV", "AWS_REGION",
	"ECS_AGENT_URI", "ECS_CONTAINER_METADATA_URI", "ECS_CONTAINER_METADATA_URI_V4", "HOSTNAME"}

// request returns the request that runs the task of a step.
func (e *Executor) request(s executor.Step) (*ecs.RunTaskInput, error) {
	overrides, err := e.overrides(s)
	if err != nil {
		return nil, err
	}
	public := types.AssignPublicIpDisabled
	if e.o.Job.PublicIP {
		public = types.AssignPublicIpEnabled
	}
	one := int32(1)
	in := &ecs.RunTaskInput{
		Cluster: &e.o.Job.Cluster, ClientToken: aws.String(token(s.ID)), StartedBy: aws.String(s.ID), Count: &one,
		Overrides: overrides, Tags: append(slices.Clone(e.tags), types.Tag{Key: aws.String("fairlead:attempt"), Value: aws.String(s.ID)}),
		NetworkConfiguration: &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{
			Subnets: e.o.Job.Subnets, SecurityGroups: e.o.Job.SecurityGroups, AssignPublicIp: public}},
	}
	switch e.o.Job.LaunchType {
	case "ec2":
		in.LaunchType = types.LaunchTypeEc2
	case "fargate-spot":
		in.CapacityProviderStrategy = []types.CapacityProviderStrategyItem{{CapacityProvider: aws.String("FARGATE_SPOT"), Weight: 1}}
	default:
		in.LaunchType = types.LaunchTypeFargate
	}
	return in, nil
}

// units converts thousandths of a CPU to ECS' units, 1,024ths of a CPU.
func units(cpu runnerspec.CPU) string {
	return strconv.FormatInt(int64(math.Round(float64(cpu)*1.024)), 10)
}

func mebibytes(size runnerspec.Size) string { return strconv.FormatInt(size.Mebibytes(), 10) }

func (e *Executor) record(id string) string { return filepath.Join(e.o.Steps, id, recordFile) }

// keep records the ARN of the attempt's task.
func (e *Executor) keep(id, arn string) error {
	return safefile.Replace(e.record(id), []byte(arn), 0o600)
}

// Attach finds the task of an attempt, running or ended.
func (e *Executor) Attach(ctx context.Context, id string) (executor.Handle, error) {
	h := &handle{e: e, id: id, since: time.Now()}
	b, err := os.ReadFile(e.record(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("attach to step %s: %w", id, err)
	}
	if h.arn = string(b); h.arn != "" {
		if st, err := os.Stat(e.record(id)); err == nil {
			h.seen = st.ModTime()
		}
		return h, nil
	}
	// The agent died before it recorded the ARN. It sent the request soon after it
	// created the step's folder, so the folder's time is about the request's time.
	h.since = time.Time{}
	if st, err := os.Stat(filepath.Dir(e.record(id))); err == nil {
		h.since = st.ModTime()
	}
	err = executor.Try(ctx, passing, h.list)
	switch _, over := h.Get(); {
	case over:
		return h, executor.ErrGone
	case errors.Is(err, errUnlisted):
		return h, nil // Wait continues to search
	case err != nil:
		return nil, fmt.Errorf("attach to step %s: %w", id, err)
	}
	return h, nil
}

// maxFound bounds the tasks that Find describes. The runner's own definition has far fewer.
const maxFound = 1000

// Find returns what the driver gave as startedBy to the running tasks of its families.
func (e *Executor) Find(ctx context.Context) ([]string, error) {
	families, err := e.families()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, family := range families {
		ids, err := e.findOf(ctx, family)
		if err != nil {
			return nil, fmt.Errorf("list the tasks of %s: %w", family, err)
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	return all, nil
}

func (e *Executor) findOf(ctx context.Context, family string) (ids []string, err error) {
	err = executor.Try(ctx, passing, func(ctx context.Context) error {
		ids = nil
		in := &ecs.ListTasksInput{Cluster: &e.o.Job.Cluster, Family: &family}
		for len(ids) < maxFound {
			page, err := e.api.ListTasks(ctx, in)
			if err != nil || len(page.TaskArns) == 0 {
				return err
			}
			found, err := e.watcher.describe(ctx, page.TaskArns) // a page has at most mostTasks
			if err != nil {
				return err
			}
			for _, task := range found {
				if _, over := exitOf(task); !over && aws.ToString(task.StartedBy) != "" {
					ids = append(ids, *task.StartedBy)
				}
			}
			if in.NextToken = page.NextToken; in.NextToken == nil {
				break
			}
		}
		return nil
	})
	return ids, err
}

// Remove deletes the record of the attempt's task. ECS deletes the task itself.
func (e *Executor) Remove(_ context.Context, id string) error {
	if err := os.Remove(e.record(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the record of step %s: %w", id, err)
	}
	return nil
}

// passing reports whether a retry may succeed.
func passing(err error) bool {
	if _, ok := errors.AsType[*noCapacity](err); ok {
		return true
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorFault() == smithy.FaultServer || slices.Contains([]string{"ThrottlingException", "Throttling", "RequestLimitExceeded", "ServerException", "ServiceUnavailable"}, e.ErrorCode())
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, errUnlisted)
}
