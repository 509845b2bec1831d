package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

// maxOutputs limits the size of the outputs file, in bytes. It is the limit of all outputs plus 1 MiB for white space.
const maxOutputs = job.MaxOutputs + 1<<20

// outputName matches the names that a reference to an output can have.
var outputName = pattern.New(`^[A-Za-z_][A-Za-z0-9_-]{0,125}$`)

// outputs reads the file $FAIRLEAD_OUTPUTS that the executable wrote. It has the format of `tofu output -json`: a JSON
// object that maps each name to {"value": any JSON, "sensitive": bool}. If the file is missing, there are no outputs. An
// output with the value null is omitted.
func (r *run) outputs() (map[string]wire.FullOutput, error) {
	f, err := safefile.Open(r.path(outputsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]wire.FullOutput{}, nil
	}
	invalid := func(format string, args ...any) error {
		return plugin.Errorf(fairlead.ReasonToolFailed, "./%s %s succeeded, but $FAIRLEAD_OUTPUTS cannot be used: %s. The component has no outputs. Fix the executable, then deploy again", r.file, r.argument, fmt.Sprintf(format, args...))
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
		return nil, plugin.Errorf(fairlead.ReasonOutputsTooLarge, "./%s %s succeeded, but wrote more than %d bytes to $FAIRLEAD_OUTPUTS. They were not stored. Keep large values in files or buckets, and output their location",
			r.file, r.argument, maxOutputs)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var written map[string]struct {
		Value     json.RawMessage `json:"value"`
		Sensitive bool            `json:"sensitive"`
	}
	if err := dec.Decode(&written); err != nil {
		return nil, invalid(`it is not an object of {"value": …, "sensitive": …} by name`)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("there is text after the object")
	}
	out := make(map[string]wire.FullOutput, len(written))
	for name, o := range written {
		if !outputName.MatchString(name) {
			return nil, invalid("%.100q is not a valid output name", name)
		}
		if len(o.Value) > 0 && string(o.Value) != "null" {
			out[name] = wire.FullOutput{Value: o.Value, Sensitive: o.Sensitive}
		}
	}
	return out, nil
}
