package dynamo

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// Without the timeout, a connection that died unnoticed blocks a request as long as the
// caller waits.
func TestEachAttemptHasATimeout(t *testing.T) {
	c, ok := New(aws.Config{Region: "eu-central-1"}, "t").client.Options().HTTPClient.(*awshttp.BuildableClient)
	if !ok || c.GetTimeout() != attemptTimeout {
		t.Errorf("the client is %T; want the SDK's with a timeout of %s", c, attemptTimeout)
	}
}
