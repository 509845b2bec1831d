package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/modeparameter"
)

// slowSSM is SSM with one parameter. It reads the parameter when a request arrives, and
// answers after the delay.
type slowSSM struct {
	delay time.Duration
	loses bool // each second request gets no answer

	mu    sync.Mutex
	value string
	seen  int
}

// RoundTrip implements http.RoundTripper.
func (s *slowSSM) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.seen++
	value, lost := s.value, s.loses && s.seen%2 == 0
	s.mu.Unlock()
	if lost {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	select {
	case <-time.After(s.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"Parameter":{"Value":%q}}`, value)))}, nil
}

func (s *slowSSM) put(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

// The customer pauses the runner by its parameter, at any moment between two reads. Within 10 s
// the agent ends its poll for jobs, also if SSM needs almost the whole timeout for each answer,
// or if it does not answer one of two requests.
func TestPauseByParameterTakesEffectWithin10Seconds(t *testing.T) {
	const almost = 3*time.Second - time.Millisecond // the timeout of a request is 3 s
	for name, ssm := range map[string]*slowSSM{
		"SSM answers at once":             {},
		"SSM answers late":                {delay: almost},
		"SSM answers one of two requests": {loses: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slog.New(slog.DiscardHandler)
				a := &Agent{cfg: config.Runner{Data: t.TempDir()}, log: log, modeRead: change{log: log}, modeConfirmed: change{log: log},
					parameterRead: make(chan struct{}, 1), freed: make(chan struct{}, 1), beatNow: make(chan struct{}, 1),
					parameter: modeparameter.New(aws.Config{Region: "eu-central-1", HTTPClient: &http.Client{Transport: ssm},
						Credentials: credentials.NewStaticCredentialsProvider("AKIARUNNER", "runner", "")}, "/fairlead/acme/mode")}
				ctx, cancel := context.WithCancel(t.Context())
				go a.watchCustomerMode(ctx)
				go a.watchModeParameter(ctx)
				mode := func() fairlead.RunnerMode {
					a.mu.Lock()
					defer a.mu.Unlock()
					return a.customerMode.Mode
				}

				var longest time.Duration
				// Two reads take at most 14 s, so the changes meet each part of their period.
				for after := time.Duration(0); after < 15*time.Second; after += 50 * time.Millisecond {
					ssm.put("enabled")
					<-time.After(time.Minute + after)
					synctest.Wait()
					if mode() != fairlead.ModeEnabled {
						t.Fatalf("the mode is %q a minute after it was enabled", mode())
					}
					poll, endPoll := context.WithCancel(ctx)
					a.mu.Lock()
					a.endPoll = endPoll
					a.mu.Unlock()
					ssm.put("paused: month-end closing")
					began := time.Now()
					select {
					case <-poll.Done():
					case <-time.After(time.Minute):
						t.Fatal("the poll goes on for a minute")
					}
					synctest.Wait()
					if mode() != fairlead.ModePaused {
						t.Fatalf("the poll ended, and the mode is %q", mode())
					}
					longest = max(longest, time.Since(began))
				}
				if longest > 10*time.Second {
					t.Errorf("the pause took effect after up to %v, want 10 s at most", longest)
				}
				cancel()
			})
		})
	}
}
