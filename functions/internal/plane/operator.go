package plane

import (
	"context"
	"encoding/json"

	lambdaevents "github.com/aws/aws-lambda-go/events"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// operatorRequest is what whoever may invoke the function by IAM asks of it: the
// vendor, in whose account it is. What comes by API Gateway has no such field at
// its top, whatever a caller writes.
type operatorRequest struct {
	Operator string `json:"operator"` // the new token's name
}

// Operator is a login of whoever runs the control plane.
type Operator struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// withOperator answers an operatorRequest with a new token; everything else goes
// to h. A control plane has no first token otherwise: its table is empty, and no
// secret is in its template.
func withOperator(c *control.Control, url string, h func(context.Context, lambdaevents.APIGatewayV2HTTPRequest) (lambdaevents.APIGatewayV2HTTPResponse, error)) any {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var asked operatorRequest
		if json.Unmarshal(raw, &asked) == nil && asked.Operator != "" {
			return newOperator(ctx, c, url, asked.Operator)
		}
		var e lambdaevents.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(raw, &e); err != nil {
			return malformed()
		}
		return h(ctx, e)
	}
}

func newOperator(ctx context.Context, c *control.Control, url, name string) (Operator, error) {
	if err := fairlead.CheckName("operator", name); err != nil {
		return Operator{}, err
	}
	token := identity.NewToken(identity.PrefixAPI)
	if err := c.RegisterOperator(ctx, fairlead.DefaultOrg, name, token); err != nil {
		return Operator{}, err
	}
	c.Logger.Info("an operator's token was made", "name", name)
	return Operator{URL: url, Token: token}, nil
}
