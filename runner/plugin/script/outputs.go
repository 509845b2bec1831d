package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

// maxOutputs bounds the file with the outputs, in bytes: as much as all of them may
// have, and some white space.
const maxOutputs = job.MaxOutputs + 1<<20

// outputName is what a reference to an output can name.
var outputName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,125}$`)

// outputs reads what the executable has written to $FAIRLEAD_OUTPUTS: an object of
// {"value": any JSON, "sensitive": bool} by name, as `tofu output -json` prints it. No
// file is no output, and null is none either.
func (r *run) outputs() (map[string]wire.FullOutput, error) {
	f, err := safefile.Open(r.path(outputsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]wire.FullOutput{}, nil
	}
	invalid := func(format string, args ...any) error {
		return plugin.Errorf(fairlead.ReasonToolFailed, "./%s %s ended well, but what it has written to $FAIRLEAD_OUTPUTS cannot be used: %s. It has no outputs; mend it, and deploy again", r.file, r.argument, fmt.Sprintf(format, args...))
	}
	if err != nil {
		return nil, invalid("%v", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxOutputs+1))
	if err != nil {
		return nil, invalid("%v", err)
	}
	if len(b) > maxOutputs {
		return nil, plugin.Errorf(fairlead.ReasonOutputsTooLarge, "./%s %s ended well, but has written more than %d bytes to $FAIRLEAD_OUTPUTS. They were not stored. Keep large values in files or buckets, and output where they are",
			r.file, r.argument, maxOutputs)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var given map[string]struct {
		Value     json.RawMessage `json:"value"`
		Sensitive bool            `json:"sensitive"`
	}
	if err := dec.Decode(&given); err != nil {
		return nil, invalid(`it is not an object of {"value": …, "sensitive": …} by name`)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("something follows the object")
	}
	out := make(map[string]wire.FullOutput, len(given))
	for name, o := range given {
		if !outputName.MatchString(name) {
			return nil, invalid("%.100q is no name of an output", name)
		}
		if len(o.Value) > 0 && string(o.Value) != "null" {
			out[name] = wire.FullOutput{Value: o.Value, Sensitive: o.Sensitive}
		}
	}
	return out, nil
}
