package artifact

import (
	"io"
	"os"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

// Limits are the limits of Pack and Unpack. A zero field has the default in its comment.
type Limits = tree.Limits

// Unpack writes the files of the tar into dst. dst should be empty: Unpack never replaces a
// file. For any archive, it writes nothing outside dst and creates no links. Files get mode
// 0644, or 0755 if their owner may execute them, minus the umask.
//
// Errors about the archive are of KindInvalid with the code "artifact-invalid", or with a
// code for the exceeded limit. After an error, dst may have some of the files.
func Unpack(archive io.Reader, dst *os.Root, limits Limits) error {
	return tree.Unpack(archive, dst, limits)
}
