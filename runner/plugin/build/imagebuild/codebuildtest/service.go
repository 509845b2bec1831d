package codebuildtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Machine is what the builds of a Service run on.
type Machine struct {
	// Environ is what the programs of a build need here besides what CodeBuild gives them, such as a proxy to the hosts of AWS.
	Environ []string
	// Path is the folder of the program docker, and of other programs that CodeBuild's image has and this machine lacks.
	Path string
	// Credentials returns the variables with which a build finds the credentials of its role, an ARN. nil: only the
	// variable that CodeBuild sets, whose address is not served here.
	Credentials func(role string) []string
	// Log gets the lines of a build, in order. CodeBuild writes them to CloudWatch Logs with the role of the build.
	Log func(role, group, stream string, lines []string) error
}

// Service serves the calls StartBuild, BatchGetBuilds and StopBuild for one project. Safe for concurrent use.
type Service struct {
	t       testing.TB
	project Project
	machine Machine
	account string
	region  string

	// Queue makes each build wait in the queue until Run is called. Set it before the first build.
	Queue bool
	// Provision fails the phase PROVISIONING of each build with this message; "": it succeeds. Set it before the first build.
	Provision string

	mu       sync.Mutex
	builds   map[string]*running // by ID
	tokens   map[string]started  // by idempotency token
	requests []Request
	refuse   func(operation string, n int) (status int, code string)
	lose     func(operation string, n int) bool
	calls    map[string]int
	limit    int // builds at the same time; 0: no limit
	ended    sync.WaitGroup
}

// Request is a call that the Service received.
type Request struct {
	Operation string
	Body      string
}

type started struct{ body, id string }

// New returns the Service of an account and a region with one project. Its builds end with the test.
func New(t testing.TB, account, region string, p Project, m Machine) *Service {
	s := &Service{t: t, project: p, machine: m, account: account, region: region, limit: p.ConcurrentBuildLimit,
		builds: map[string]*running{}, tokens: map[string]started{}, calls: map[string]int{}}
	t.Cleanup(func() {
		for _, b := range s.list() {
			b.stop()
		}
		s.ended.Wait()
	})
	return s
}

func (s *Service) list() []*running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.builds))
}

// Refuse makes f decide which calls fail, and how. n counts the calls of the operation from 1. The status 0 permits a call.
func (s *Service) Refuse(f func(operation string, n int) (status int, code string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.calls = f, map[string]int{}
}

// Lose makes f decide which answers are lost after the call had its effect. n counts the calls of the operation from 1.
func (s *Service) Lose(f func(operation string, n int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose, s.calls = f, map[string]int{}
}

// Requests returns the calls so far.
func (s *Service) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Run starts the builds that wait in the queue.
func (s *Service) Run() {
	for _, b := range s.list() {
		b.run()
	}
}

// Stop stops all builds, as a person can.
func (s *Service) Stop() {
	for _, b := range s.list() {
		b.stop()
	}
}

// EndQueued ends the builds that wait in the queue as CodeBuild does after the project's timeout of the queue.
func (s *Service) EndQueued() {
	for _, b := range s.list() {
		b.timeOut("QUEUED")
	}
}

// TimeOut ends the builds that run as CodeBuild does after the project's timeout.
func (s *Service) TimeOut() {
	for _, b := range s.list() {
		b.timeOut("BUILD")
	}
}

// Forget deletes all builds from the list of builds, as a person can.
func (s *Service) Forget() {
	for _, b := range s.list() {
		b.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.builds)
}

// Statuses returns the status of each build.
func (s *Service) Statuses() (out []string) {
	for _, b := range s.list() {
		out = append(out, b.report().BuildStatus)
	}
	slices.Sort(out)
	return out
}

// IDs returns the ID of each build.
func (s *Service) IDs() (out []string) {
	for _, b := range s.list() {
		out = append(out, b.report().ID)
	}
	slices.Sort(out)
	return out
}

// refusal is an error in the protocol JSON 1.1.
type refusal struct {
	status        int
	code, message string
}

// ServeHTTP implements http.Handler. The caller authenticates requests, if a test needs it.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	operation, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "CodeBuild_20161006.")
	if !ok || r.Method != http.MethodPost || r.URL.Path != "/" || r.Header.Get("Content-Type") != "application/x-amz-json-1.1" {
		s.t.Errorf("unexpected request to CodeBuild: %s %s %v", r.Method, r.URL.Path, r.Header)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	out, refused := s.answer(operation, body)
	s.mu.Lock()
	lost := s.lose != nil && s.lose(operation, s.calls[operation])
	s.mu.Unlock()
	if lost {
		out, refused = nil, &refusal{http.StatusBadGateway, "BadGateway", "the answer was lost"}
	}
	status := http.StatusOK
	if refused != nil {
		status, out = refused.status, map[string]string{"__type": refused.code, "message": refused.message}
	}
	text, err := json.Marshal(out)
	if err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may be gone
}

func (s *Service) answer(operation string, body []byte) (any, *refusal) {
	s.mu.Lock()
	s.requests = append(s.requests, Request{operation, string(body)})
	s.calls[operation]++
	refuse, n := s.refuse, s.calls[operation]
	s.mu.Unlock()
	if refuse != nil {
		if status, code := refuse(operation, n); status != 0 {
			return nil, &refusal{status, code, "refused by the test"}
		}
	}
	switch operation {
	case "StartBuild":
		return s.startBuild(body)
	case "BatchGetBuilds":
		return s.getBuilds(body)
	case "StopBuild":
		return s.stopBuild(body)
	}
	s.t.Errorf("this simulation has no operation %s", operation)
	return nil, &refusal{http.StatusBadRequest, "UnknownOperationException", operation}
}

func invalid(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "InvalidInputException", fmt.Sprintf(format, args...)}
}

// read decodes a request. A field that this simulation does not know is an error.
func read(body []byte, in any) *refusal {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func (s *Service) startBuild(body []byte) (any, *refusal) {
	var in struct {
		ProjectName                  string
		IdempotencyToken             string
		EnvironmentVariablesOverride []Variable
		LogsConfigOverride           struct {
			CloudWatchLogs struct{ Status, GroupName, StreamName string }
		}
	}
	if r := read(body, &in); r != nil {
		return nil, r
	}
	if in.ProjectName != s.project.Name {
		return nil, &refusal{http.StatusBadRequest, "ResourceNotFoundException", "Project cannot be found: arn:aws:codebuild:" + s.region + ":" + s.account + ":project/" + in.ProjectName}
	}
	log := in.LogsConfigOverride.CloudWatchLogs
	if log.Status == "" {
		log.Status, log.GroupName = "ENABLED", s.project.LogsConfig.CloudWatchLogs.GroupName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.tokens[in.IdempotencyToken]; ok && in.IdempotencyToken != "" {
		if before.body != string(body) {
			return nil, invalid("The token was already used with other parameters")
		}
		return s.named(before.id)
	}
	busy := 0
	for _, b := range s.builds {
		if !b.report().BuildComplete {
			busy++
		}
	}
	if s.limit > 0 && busy >= s.limit {
		return nil, &refusal{http.StatusBadRequest, "AccountLimitExceededException", "Cannot have more than 0 builds in queue for the account"}
	}
	uuid := newUUID()
	id := s.project.Name + ":" + uuid
	stream := strings.TrimPrefix(log.StreamName+"/"+uuid, "/")
	b := newRunning(s, id, log.GroupName, stream, in.EnvironmentVariablesOverride)
	s.builds[id], s.tokens[in.IdempotencyToken] = b, started{string(body), id}
	if !s.Queue {
		b.run()
	}
	return s.named(id)
}

// named returns a build. The caller holds the lock.
func (s *Service) named(id string) (any, *refusal) {
	b, ok := s.builds[id]
	if !ok {
		return nil, &refusal{http.StatusBadRequest, "ResourceNotFoundException", "Build cannot be found: " + id}
	}
	return map[string]any{"build": b.report()}, nil
}

func (s *Service) getBuilds(body []byte) (any, *refusal) {
	var in struct{ IDs []string }
	if r := read(body, &in); r != nil {
		return nil, r
	}
	builds, unknown := []report{}, []string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range in.IDs {
		if b, ok := s.builds[id]; ok {
			builds = append(builds, b.report())
		} else {
			unknown = append(unknown, id)
		}
	}
	return map[string]any{"builds": builds, "buildsNotFound": unknown}, nil
}

func (s *Service) stopBuild(body []byte) (any, *refusal) {
	var in struct{ ID string }
	if r := read(body, &in); r != nil {
		return nil, r
	}
	s.mu.Lock()
	b := s.builds[in.ID]
	s.mu.Unlock()
	if b != nil {
		b.stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named(in.ID)
}

func newUUID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails (crypto/rand)
	h := hex.EncodeToString(b)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// report is a build as CodeBuild reports it.
type report struct {
	ID            string        `json:"id"`
	ARN           string        `json:"arn"`
	ProjectName   string        `json:"projectName"`
	BuildStatus   string        `json:"buildStatus"`
	BuildComplete bool          `json:"buildComplete"`
	CurrentPhase  string        `json:"currentPhase"`
	StartTime     float64       `json:"startTime"`
	Phases        []phaseReport `json:"phases"`
	Logs          logsReport    `json:"logs"`
}

type phaseReport struct {
	PhaseType   string          `json:"phaseType"`
	PhaseStatus string          `json:"phaseStatus,omitempty"`
	Contexts    []contextReport `json:"contexts,omitempty"`
}

type contextReport struct {
	StatusCode string `json:"statusCode"`
	Message    string `json:"message"`
}

type logsReport struct {
	GroupName  string `json:"groupName"`
	StreamName string `json:"streamName"`
}

// within bounds the end of a build's processes.
const within = 10 * time.Second

// background is the context of a build: it ends with the build, not with a request.
func background() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}
