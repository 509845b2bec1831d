package appspec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Load reads the app in the folder fsys: app.yaml and the folders that its components and actions name. It returns either the app,
// or a nil app and all problems.
//
// fsys should support symbolic links (fs.ReadLinkFS, as os.Root and os.DirFS do). Load follows links that stay inside
// fsys.
//
// Load calls checks for each part of an app that has no other problem. It reports their errors as problems of the
// part's source.
func Load(fsys fs.FS, checks ...Check) (*App, Problems) { return load(fsys, true, checks) }

// LoadUnlocked is Load for a closed app whose lock is absent or old.
func LoadUnlocked(fsys fs.FS, checks ...Check) (*App, Problems) { return load(fsys, false, checks) }

// load is Load. It compares the app with its lock if locked is set.
func load(fsys fs.FS, locked bool, checks []Check) (*App, Problems) {
	src, problem := readFile(fsys)
	if problem != nil {
		return nil, Problems{*problem}
	}
	r := read(FileName, src, fsys)
	modules := map[string]module{}
	valid := len(r.Problems) == 0
	for _, c := range r.app.Parts() {
		if !c.InFolder() || isGenerated(c) {
			continue // the build checks its files, and checkLock the lock
		}
		at := r.Node(pathOf(c) + ".source")
		written, _ := at.Value.(string)
		source, wrong, _ := cleanSource(written)
		if wrong != "" {
			continue // reported
		}
		m, message, hint, problems := checkFolder(fsys, source, c.Type)
		if message == "" {
			message, hint = lacksDockerfile(fsys, source, c.Build)
		}
		r.Problems = append(r.Problems, problems...)
		if m != nil {
			modules[c.Name] = *m
		}
		if registry, ok := fromRegistry(fsys, source, written); ok {
			r.At(at.Place, "registry-source",
				fmt.Sprintf("the source %s of %s is an address in a module registry, not a folder of the app", yamlnode.Quote(written), nameOf(c)), registry)
		} else if message != "" {
			r.At(at.Place, "missing-source", fmt.Sprintf("the source %s of %s %s", yamlnode.Quote("./"+source), nameOf(c), message), hint)
		}
	}
	if valid {
		checkModules(r.app, modules, r.report)
		if locked {
			r.Add(checkLock(fsys, r.app, r.report))
		}
	}
	if len(r.Problems) == 0 {
		checkSources(fsys, r.app, locked, checks, r.report)
	}
	if len(r.Problems) > 0 {
		return nil, yamlnode.Finish(r.Problems)
	}
	return r.app, nil
}

// pathOf returns the path of a part in app.yaml.
func pathOf(part Component) string {
	if strings.HasPrefix(part.Name, ActionPrefix) {
		return part.Name // actions.NAME
	}
	return "components." + part.Name
}

// nameOf returns a part's noun and name for a message.
func nameOf(part Component) string {
	if name, ok := strings.CutPrefix(part.Name, ActionPrefix); ok {
		return "action " + yamlnode.Quote(name)
	}
	return "component " + yamlnode.Quote(part.Name)
}

// Check returns an error if the files of a component or of an action's part are invalid. If the error is a *fairlead.Error, Load reports the
// problem with the code and the hint of the error.
type Check func(Component, Source) error

func checkSources(fsys fs.FS, app *App, locked bool, checks []Check, report reporter) {
	for _, c := range app.Parts() {
		if !c.InFolder() || !locked && isGenerated(c) {
			continue
		}
		s, err := SourceOf(fsys, c)
		for _, check := range checks {
			if err == nil {
				err = check(c, s)
			}
		}
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*fairlead.Error](err)
		if !ok {
			e = &fairlead.Error{Code: fairlead.CodeMissingSource, Message: reason(err)}
		}
		report(pathOf(c)+".source", string(e.Code), fmt.Sprintf("the source of %s cannot be packed: %s", nameOf(c), e.Message), e.Hint)
	}
}

// readFile returns app.yaml's content.
func readFile(fsys fs.FS) ([]byte, *Problem) {
	fail := func(code, message, hint string) ([]byte, *Problem) {
		return nil, &Problem{File: FileName, Line: 1, Column: 1, Code: code, Message: message, Hint: hint}
	}
	real, err := follow(fsys, FileName)
	if errors.Is(err, fs.ErrNotExist) {
		hint := "Create it, or name the folder that holds it."
		if _, err := fs.Stat(fsys, "app.yml"); err == nil {
			hint = "Rename app.yml to app.yaml."
		}
		return fail("missing-file", "there is no app.yaml in the folder", hint)
	}
	if err != nil {
		return fail("unreadable-file", "app.yaml cannot be read: "+reason(err), "")
	}
	// readBounded returns one byte more than the limit, so that Parse refuses the file
	// with its own message.
	src, err := readBounded(fsys, real, MaxFileSize)
	if errors.Is(err, errNotRegular) {
		return fail("unreadable-file", "app.yaml is not a regular file", "")
	}
	if err != nil && !errors.Is(err, errTooLarge) {
		return fail("unreadable-file", "app.yaml cannot be read: "+reason(err), "")
	}
	return src, nil
}

// reason returns the error's cause without the path, because the caller adds the path.
func reason(err error) string {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		err = perr.Err
	}
	return yamlnode.Printable(err.Error())
}

// errLeaves reports a symbolic link that points out of the app's folder.
var errLeaves = errors.New("a symbolic link leaves the app's folder")

// follow replaces every symbolic link in name by its target. It returns errLeaves if a link points out of fsys. fs.FS
// cannot resolve links, and os.DirFS would follow a link that points out of fsys.
func follow(fsys fs.FS, name string) (string, error) {
	const maxLinks = 40 // the limit of Linux
	rest := strings.Split(path.Clean(name), "/")
	done := "."
	for links := 0; len(rest) > 0; {
		step := rest[0]
		rest = rest[1:]
		switch step {
		case ".", "":
			continue
		case "..":
			if done == "." {
				return "", errLeaves
			}
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, step)
		info, err := fs.Lstat(fsys, next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", errors.New("too many symbolic links")
		}
		target, err := fs.ReadLink(fsys, next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) || strings.Contains(target, `\`) {
			return "", errLeaves
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

// checkFolder checks a component's folder. It returns a message and a hint if the folder is invalid. Otherwise it
// returns the declarations of the module (nil if they are not known) and the problems in the module's files. A folder
// of an unknown type is checked as a module.
func checkFolder(fsys fs.FS, source, typ string) (m *module, message, hint string, wrong Problems) {
	real, err := follow(fsys, source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint, _ := nearFolder(fsys, source)
		return nil, "does not exist", hint, nil
	case errors.Is(err, errLeaves):
		return nil, "leaves the app's folder through a symbolic link", "Only files in the app's folder are shipped: copy the module into it.", nil
	case err != nil:
		return nil, "cannot be read: " + reason(err), "", nil
	}
	info, err := fs.Stat(fsys, real)
	if err != nil {
		return nil, "cannot be read: " + reason(err), "", nil
	}
	if !info.IsDir() {
		return nil, "is not a folder", "Name the folder that holds the module's .tf files.", nil
	}
	t, known := component.Of(typ)
	if t.Executable != "" && !isExecutable(fsys, path.Join(real, t.Executable)) {
		return nil, fmt.Sprintf("holds no executable file %q", t.Executable),
			fmt.Sprintf("A component of type %s is a folder with that file at its top; `chmod +x` makes it executable.", typ), nil
	}
	if t.File != "" {
		if file, err := fs.Stat(fsys, path.Join(real, t.File)); err != nil || !file.Mode().IsRegular() {
			return nil, fmt.Sprintf("holds no file %q", t.File), fmt.Sprintf("A component of type %s is a folder with that file at its top.", typ), nil
		}
	}
	if known && !t.Module {
		return nil, "", "", nil
	}
	files, given, err := moduleFiles(fsys, real)
	if err != nil {
		return nil, "cannot be read: " + reason(err), "", nil
	}
	if len(files) == 0 {
		return nil, "holds no .tf or .tofu file", "A component of type terraform is a folder with a root module.", nil
	}
	read, wrong, err := readModule(fsys, real, source, tfmodule.Effective(files))
	if err != nil {
		return nil, "", "", wrong
	}
	if given {
		for name := range read.variables {
			read.variables[name] = false
		}
	}
	return &read, "", "", wrong
}

// isExecutable reports whether the packer marks the named file as executable by its owner.
func isExecutable(fsys fs.FS, name string) bool {
	real, err := follow(fsys, name)
	if err != nil {
		return false
	}
	info, err := fs.Stat(fsys, real)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o100 != 0
}

// nearFolder suggests the sibling folder whose name is most similar to the missing folder's name. found is false if no
// name is similar.
func nearFolder(fsys fs.FS, source string) (hint string, found bool) {
	parent, base := path.Split(source)
	parent = path.Clean(parent)
	if real, err := follow(fsys, parent); err == nil {
		if dir, err := fsys.Open(real); err == nil {
			defer dir.Close() // an error of Close has no effect on a file that was only read
			if list, ok := dir.(fs.ReadDirFile); ok {
				var names []string
				entries, _ := list.ReadDir(500) // only a hint: a folder that cannot be read is not suggested
				for _, e := range entries {
					if e.IsDir() {
						names = append(names, e.Name())
					}
				}
				if name := yamlnode.Nearest(base, names); name != "" {
					return fmt.Sprintf("Did you mean %s?", yamlnode.Quote("./"+path.Join(parent, name))), true
				}
			}
		}
	}
	return "Sources are relative to the folder of app.yaml.", false
}

// registryAddress matches the address of a module in a registry, in Terraform's syntax: NAMESPACE/NAME/SYSTEM, with an
// optional host before NAMESPACE and an optional subfolder after SYSTEM.
var registryAddress = pattern.New(`^(?:[a-z0-9.-]+\.[a-z]+/)?[0-9A-Za-z_-]+/[0-9A-Za-z_-]+/[0-9a-z]+(?://[0-9A-Za-z/_.-]+)?$`)

// fromRegistry reports whether a source is the address of a module in a registry and not a folder. The hint shows the field
// that names such a module.
func fromRegistry(fsys fs.FS, source, written string) (hint string, ok bool) {
	if !registryAddress.MatchString(written) {
		return "", false
	}
	if _, err := follow(fsys, source); !errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if _, near := nearFolder(fsys, source); near {
		return "", false
	}
	at, folder, inside := strings.Cut(written, "//")
	hint = fmt.Sprintf(`Name the module under module in place of source: "module: {source: %s, version: 1.2.3}", with the version that you have tested`, at)
	if inside {
		return fmt.Sprintf(`%s, and its folder with "source: ./%s".`, hint, folder), true
	}
	return hint + ".", true
}

// moduleFiles returns the files of a module, in order. The list includes files that only OpenTofu or only Terraform
// reads. given is true if some file sets values of the module's variables. moduleFiles stops after a hundred thousand
// entries.
func moduleFiles(fsys fs.FS, dir string) (names []string, given bool, err error) {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close() // an error of Close has no effect on a file that was only read
	list, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, false, errors.New("it cannot be listed")
	}
	for range 100 {
		entries, err := list.ReadDir(1000)
		for _, e := range entries {
			name := e.Name()
			switch {
			case e.IsDir():
			case tfmodule.Ext(name) != "":
				names = append(names, name)
			case name == "terraform.tfvars" || name == "terraform.tfvars.json" || hasSuffix(name, ".auto.tfvars", ".auto.tfvars.json"):
				given = true
			}
		}
		if err == io.EOF || (err == nil && len(entries) == 0) {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	slices.Sort(names)
	return names, given, nil
}

func hasSuffix(name string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
