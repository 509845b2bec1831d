package artifact

import (
	"io"
	"os"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

// Limits bound what Pack accepts and Unpack writes. A zero field stands for the
// default beside it.
type Limits = tree.Limits

// Unpack writes the files of the tar into dst. dst should be empty: no file is ever replaced. Unpack writes nothing
// outside dst for any archive, and creates no links. Files get mode 0644, or 0755 if their owner may execute them, less
// the umask.
//
// Errors about the archive are of KindInvalid with the code "artifact-invalid", or with a code that names the limit.
// After an error dst holds part of the files.
func Unpack(archive io.Reader, dst *os.Root, limits Limits) error {
	return tree.Unpack(archive, dst, limits)
}
