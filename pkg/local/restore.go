package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// AfterRestore makes a data folder that was restored from a backup safe to serve: see
// control.AfterRestore. No server may use the folder.
func AfterRestore(ctx context.Context, data string) (_ control.Restored, err error) {
	if data, err = filepath.Abs(data); err != nil {
		return control.Restored{}, fmt.Errorf("data folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(data, "table.db")); errors.Is(err, fs.ErrNotExist) {
		return control.Restored{}, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeRecordNotFound,
			Message: fmt.Sprintf("the folder %s has no table.db, so it is not a control plane's data folder", data),
			Hint:    "Restore the backup into this folder first, or name the right folder with --data."}
	}
	s := &Server{opts: Options{Data: data, Logger: slog.New(slog.DiscardHandler)}}
	defer s.closeParts()
	if _, err := s.wire(ctx); err != nil {
		return control.Restored{}, err
	}
	return s.control.AfterRestore(ctx, "")
}
