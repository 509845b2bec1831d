package plane

import (
	"context"
	"encoding/json"

	lambdaevents "github.com/aws/aws-lambda-go/events"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// operatorRequest is the request of a caller who may invoke the function by IAM: the vendor, who
// owns the account. An API Gateway event never has this field at its top level, whatever the HTTP
// client sends.
type operatorRequest struct {
	Operator string `json:"operator"` // the new token's name
}

// Operator is the first login of an operator of the control plane. The token expires after control.FirstTokenLife.
type Operator struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// withOperator answers an operatorRequest with a new token and passes every other event to h. Only
// this request can create the first token of a control plane, because its table is empty and its
// template contains no secret.
func withOperator(c *control.Control, url string, h func(context.Context, lambdaevents.APIGatewayV2HTTPRequest) (lambdaevents.APIGatewayV2HTTPResponse, error)) any {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var asked operatorRequest
		if json.Unmarshal(raw, &asked) == nil && asked.Operator != "" {
			return newOperator(ctx, c, url, asked.Operator)
		}
		var e lambdaevents.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(raw, &e); err != nil {
			return malformed(), nil
		}
		return h(ctx, e)
	}
}

func newOperator(ctx context.Context, c *control.Control, url, name string) (Operator, error) {
	if err := fairlead.CheckName("operator", name); err != nil {
		return Operator{}, err
	}
	token := identity.NewToken(identity.PrefixAPI)
	if err := c.RegisterFirst(ctx, fairlead.DefaultOrg, name, token); err != nil {
		return Operator{}, err
	}
	c.Logger.Info("an operator's token was made", "name", name)
	return Operator{URL: url, Token: token}, nil
}
