package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

// The test binary is also the function under test.
func TestMain(m *testing.M) {
	if os.Getenv("_HANDLER") != "" {
		lambda.Start(answerOfSize)
		return
	}
	os.Exit(m.Run())
}

// answerOfSize answers with as many bytes as the body of the request names, or waits for the deadline.
func answerOfSize(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	var n int
	if err := json.Unmarshal([]byte(e.Body), &n); err != nil {
		<-ctx.Done()
		<-make(chan struct{}) // ignores its deadline
	}
	return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: strings.Repeat("a", n)}, nil
}

func function(t *testing.T, limit time.Duration) *Function {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	return Start(t, cmd, limit)
}

func post(h http.Handler, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/v1/x", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// invoker counts invocations.
type invoker func(ctx context.Context, event any) ([]byte, error)

func (i invoker) Invoke(ctx context.Context, event any) ([]byte, error) { return i(ctx, event) }

func TestFrontEnforcesTheSizesOfAWS(t *testing.T) {
	f := function(t, Timeout)
	h := Front(t, f)
	const json, binary = "application/json", "application/octet-stream"
	for name, tt := range map[string]struct {
		contentType, body string
		status            int
	}{
		"an answer within the limit":                              {json, "6000000", 200},
		"a body above that of API Gateway":                        {binary, strings.Repeat("x", MaxBody+1), 413},
		"a body that base64 makes larger than an event":           {binary, strings.Repeat("x", 4_800_000), 413},
		"text that its quotation marks make larger than an event": {json, strings.Repeat(`"`, 3_200_000), 413},
	} {
		t.Run(name, func(t *testing.T) {
			if w := post(h, tt.contentType, tt.body); w.Code != tt.status || tt.status != 200 && !strings.Contains(w.Body.String(), `"message"`) {
				t.Errorf("the answer is %d %.100s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
	r := httptest.NewRequest("GET", "/v1/x", nil)
	r.Header.Set("Authorization", strings.Repeat("x", MaxHeaders))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large headers are answered with %d", w.Code)
	}
	if w := post(h, json, "6300000"); w.Code != http.StatusInternalServerError {
		t.Errorf("a larger answer than Lambda's limit is answered with %d", w.Code)
	}
}

func TestFrontEnforcesTheTimesOfAWS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := Front(t, invoker(func(ctx context.Context, _ any) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }))
		if w := post(h, "application/json", "{}"); w.Code != http.StatusServiceUnavailable || time.Since(began) != IntegrationTime {
			t.Errorf("after %s the answer is %d", time.Since(began), w.Code)
		}
	})
	f := function(t, 200*time.Millisecond)
	if w := post(Front(t, f), "application/json", `"wait"`); w.Code != http.StatusInternalServerError {
		t.Errorf("a function that ignores its deadline is answered with %d", w.Code)
	}
	<-f.Exited()
	if _, err := f.Invoke(t.Context(), nil); !errors.Is(err, ErrExited) {
		t.Errorf("the environment remains after its deadline: %v", err)
	}
}

func TestThrottleRefusesAboveTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Throttle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 2, 3)
		for i, want := range []int{200, 200, 200, 429} {
			if w := post(h, "application/json", "{}"); w.Code != want {
				t.Errorf("request %d is answered with %d, want %d", i+1, w.Code, want)
			}
		}
		time.Sleep(time.Second) // of the fake clock
		for i, want := range []int{200, 200, 429} {
			if w := post(h, "application/json", "{}"); w.Code != want {
				t.Errorf("request %d a second later is answered with %d, want %d", i+1, w.Code, want)
			}
		}
	})
}
