package dynamo

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// A connection can break although the client gets no error. Without the timeout, a request
// on such a connection blocks as long as the caller waits.
func TestEachAttemptHasATimeout(t *testing.T) {
	c, ok := New(aws.Config{Region: "eu-central-1"}, "t").client.Options().HTTPClient.(*awshttp.BuildableClient)
	if !ok || c.GetTimeout() != attemptTimeout {
		t.Errorf("the client is %T; want the SDK's with a timeout of %s", c, attemptTimeout)
	}
}
