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

// login logs the CLI in, unless it is. The function makes the token: whoever may
// invoke it by IAM may have one.
func (d *Deployment) login(ctx context.Context, outputs map[string]string) error {
	if d.loggedIn(ctx, outputs["URL"]) {
		return nil
	}
	d.say("Logging the CLI in to %s", outputs["URL"])
	asked, err := json.Marshal(map[string]string{"operator": d.Operator})
	if err != nil {
		return err
	}
	out, err := lambda.NewFromConfig(d.Config).Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(outputs["ControlAPIFunction"]), Payload: asked})
	if err != nil {
		return fmt.Errorf("ask for an operator's token: %w", err)
	}
	var answer struct{ URL, Token, ErrorMessage string }
	// What cannot be read is not shown: a token may be in it.
	if err := json.Unmarshal(out.Payload, &answer); err != nil {
		return errors.New("ask for an operator's token: the function's answer cannot be read")
	}
	if out.FunctionError != nil || answer.Token == "" {
		return fmt.Errorf("ask for an operator's token: the function says %q", answer.ErrorMessage)
	}
	_, err = d.Run(ctx, d.cli(answer.Token, "login", answer.URL, "--token-file", "-"))
	return err
}

// loggedIn reports whether the CLI has a token that the control plane takes.
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
