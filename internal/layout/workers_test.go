package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSourcesStartWorkersInOneWay: sources and their client start goroutines only by package worker, which recovers: a
// panic is a failure of its source, and never the end of the process.
func TestSourcesStartWorkersInOneWay(t *testing.T) {
	files := token.NewFileSet()
	for _, root := range []string{"../../sources", "../../adsc"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, imp := range file.Imports {
				require.NotEqual(t, `"golang.org/x/sync/errgroup"`, imp.Path.Value, "%s: use package worker", path)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					require.Fail(t, "use package worker", "%s starts a goroutine", files.Position(n.Pos()))
				case *ast.SelectorExpr:
					if identifier, ok := n.X.(*ast.Ident); ok && identifier.Name == "sync" && n.Sel.Name == "WaitGroup" {
						require.Fail(t, "use package worker", "%s has a WaitGroup", files.Position(n.Pos()))
					}
				}
				return true
			})
			return nil
		}))
	}
}
