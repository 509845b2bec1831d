package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead/fairlead/pkg/deadletter"
	"github.com/fairlead/fairlead/tools/moto"
)

// TestDeadLettersAreReplayed runs the command against servers compatible with CloudFormation and
// SQS. A recorder takes the place of Lambda. The queues are found as on AWS: by their logical IDs
// in the stack of the stage.
func TestDeadLettersAreReplayed(t *testing.T) {
	server := moto.Server{Own: true}
	t.Cleanup(server.Stop)
	to, err := url.Parse(server.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var invoked []string
	account := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/2015-03-31/functions/") {
			account.ServeHTTP(rw, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		invoked = append(invoked, string(body))
		if strings.Contains(string(body), "poison") {
			rw.Header().Set("X-Amz-Function-Error", "Unhandled")
		}
		fmt.Fprint(rw, "null")
	}))
	t.Cleanup(front.Close)

	cfg := aws.Config{Region: awsRegion, BaseEndpoint: &front.URL, Credentials: credentials.NewStaticCredentialsProvider("test", "secret", "")}
	var resources []string
	for _, id := range deadletter.Queues() {
		resources = append(resources, fmt.Sprintf("%q: {\"Type\": \"AWS::SQS::Queue\"}", id))
	}
	template := `{"Resources": {` + strings.Join(resources, ", ") + `}}`
	if _, err := cloudformation.NewFromConfig(cfg).CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: aws.String("fairlead-test"), TemplateBody: &template}); err != nil {
		t.Fatal(err)
	}
	send := func(function, body string) {
		queue, err := deadletter.New(cfg, deadletter.Options{}).QueueOf(t.Context(), "fairlead-test", deadletter.Queues()[function])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sqs.NewFromConfig(cfg).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
	}
	// given returns the message of Lambda for an invocation that failed.
	given := func(function, payload string) string {
		return fmt.Sprintf(`{"requestContext":{"functionArn":"arn:aws:lambda:%s:123456789012:function:%s:live"},"requestPayload":%s}`, awsRegion, function, payload)
	}
	send("logindex", given("fairlead-test-logindex", `{"delivery":1}`))
	send("sweep", given("fairlead-test-sweep", `{"schedule":1}`))
	send("webhook", given("fairlead-other-webhook", `{"of":"another stack"}`))

	p := params("replay")
	p.Cmds["send"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: send FUNCTION PAYLOAD")
		}
		send(args[0], given("fairlead-test-"+args[0], args[1]))
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		for name, value := range map[string]string{"AWS_ENDPOINT_URL": front.URL, "AWS_ACCESS_KEY_ID": "AKIAFAIRLEADTEST", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_EC2_METADATA_DISABLED": "true"} {
			env.Setenv(name, value)
		}
		return setup(env)
	}
	t.Run("script", func(t *testing.T) { testscript.Run(t, p) })
	slices.Sort(invoked)
	if want := []string{`{"delivery":1}`, `{"poison":1}`, `{"schedule":1}`}; !slices.Equal(invoked, want) {
		t.Errorf("the functions were invoked with %q, want %q", invoked, want)
	}
}

// The command has a queue for each of its names.
func TestEachDeadLetterQueueHasAName(t *testing.T) {
	queues := deadletter.Queues()
	for _, name := range cli.DeadLetterQueues {
		if queues[name] == "" {
			t.Errorf("%s has no queue", name)
		}
		delete(queues, name)
	}
	if len(queues) > 0 {
		t.Errorf("the command cannot replay %v", queues)
	}
}
