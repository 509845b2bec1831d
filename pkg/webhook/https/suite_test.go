package https_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/webhook"
	"github.com/fairlead/fairlead/pkg/webhook/https"
	"github.com/fairlead/fairlead/pkg/webhook/webhooktest"
)

func TestSenderConforms(t *testing.T) {
	webhooktest.Run(t, webhooktest.Harness{Open: func(_ *testing.T, transport http.RoundTripper) webhook.Sender {
		return https.New(transport, 5*time.Second, "1.2.3", time.Now)
	}})
}
