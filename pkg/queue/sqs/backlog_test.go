package sqs_test

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/queue/sqs"
)

// A function sends messages to itself with a delay. A message must not arrive before its delay
// has passed.
func TestBacklogSendsWithDelay(t *testing.T) {
	cfg := config(t)
	client := awssqs.NewFromConfig(cfg)
	made, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(options().Prefix + "sweeps")})
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	delays := []time.Duration{3 * time.Second, time.Second, time.Minute}
	if err := sqs.NewBacklog(cfg, *made.QueueUrl).Send(t.Context(), "sweep", delays...); err != nil {
		t.Fatal(err)
	}
	for _, delay := range []time.Duration{time.Second, 3 * time.Second} {
		out, err := client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: made.QueueUrl, WaitTimeSeconds: 20})
		if err != nil || len(out.Messages) != 1 || *out.Messages[0].Body != "sweep" {
			t.Fatalf("received %+v, %v; want one message", out, err)
		}
		// The server's clock is not exact.
		if took := time.Since(sent); took < delay-100*time.Millisecond {
			t.Errorf("a message came after %s, want at least %s", took, delay)
		}
	}
	left, err := client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: made.QueueUrl,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessagesDelayed}})
	if err != nil || left.Attributes["ApproximateNumberOfMessagesDelayed"] != "1" {
		t.Errorf("messages left: %v, %v; want the one with a delay of a minute", left, err)
	}
}

func TestMissingBacklogIsReported(t *testing.T) {
	url := server.Endpoint(t) + "/000000000000/" + options().Prefix + "sweeps"
	if err := sqs.NewBacklog(config(t), url).Send(t.Context(), "sweep", time.Second); err == nil || !strings.Contains(err.Error(), url) {
		t.Errorf("got %v, want an error that names the queue", err)
	}
}

// SQS may accept some messages of a request and refuse others. No test server does this.
func TestPartlyRefusedSendIsReported(t *testing.T) {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Entries []struct{ Id, MessageBody string }
		}
		if text, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(text, &in) != nil || len(in.Entries) != 3 {
			t.Errorf("received %s, %v; want one request with all messages", text, err)
			return
		}
		sum := md5.Sum([]byte(in.Entries[0].MessageBody)) // the SDK checks this sum
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"Successful": []any{map[string]any{"Id": in.Entries[0].Id, "MessageId": "m", "MD5OfMessageBody": hex.EncodeToString(sum[:])}},
			"Failed": []any{map[string]any{"Id": in.Entries[1].Id, "Code": "InternalError", "SenderFault": false},
				map[string]any{"Id": in.Entries[2].Id, "Code": "KmsThrottled", "SenderFault": true, "Message": "slow down"}},
		})
	}))
	t.Cleanup(front.Close)
	err := sqs.NewBacklog(configOf(front.URL), front.URL+"/1/sweeps").Send(t.Context(), "sweep", 1, 2, 3)
	if err == nil {
		t.Fatal("two messages are lost without an error")
	}
	for _, want := range []string{"/1/sweeps", "message 2 of 3: InternalError", "message 3 of 3: KmsThrottled: slow down"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not contain %q", err, want)
		}
	}
}
