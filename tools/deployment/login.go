package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
)

// login logs the CLI in unless it is logged in. The Control API's function creates the
// token. If IAM permits a caller to invoke the function, the caller can get a token.
func (d *Deployment) login(ctx context.Context, outputs map[string]string) error {
	if d.loggedIn(ctx, outputs["URL"]) {
		return nil
	}
	d.say("Logging the CLI in to %s", outputs["URL"])
	request, err := json.Marshal(map[string]string{"operator": d.Operator})
	if err != nil {
		return err
	}
	out, err := lambda.NewFromConfig(d.Config).Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(outputs["ControlAPIFunction"]), Payload: request})
	if err != nil {
		return fmt.Errorf("get an operator's token: %w", err)
	}
	var answer struct{ URL, Token, ErrorMessage string }
	// The error must not contain the answer, because the answer may contain a token.
	if err := json.Unmarshal(out.Payload, &answer); err != nil {
		return errors.New("get an operator's token: the function's answer is not valid JSON")
	}
	if out.FunctionError != nil || answer.Token == "" {
		return fmt.Errorf("get an operator's token: the function returned the error %q", answer.ErrorMessage)
	}
	_, err = d.Run(ctx, d.cli(answer.Token, "login", answer.URL, "--token-file", "-"))
	return err
}

// loggedIn reports whether the CLI has a token that the control plane at url accepts.
func (d *Deployment) loggedIn(ctx context.Context, url string) bool {
	out, err := d.Run(ctx, d.cli("", "version", "--json"))
	var v struct{ URL string }
	if err != nil || json.Unmarshal(out, &v) != nil || strings.TrimSuffix(v.URL, "/") != strings.TrimSuffix(url, "/") {
		return false
	}
	_, err = d.Run(ctx, d.cli("", "app", "list", "--json"))
	return err == nil
}

func (d *Deployment) cli(stdin string, args ...string) Command {
	return Command{Args: append([]string{filepath.Join(d.Root, "bin", "fairlead")}, args...), Folder: d.Root, Stdin: stdin}
}
