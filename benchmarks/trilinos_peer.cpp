// CG with smoothed aggregation by Trilinos' ensembles of 16 samples (Belos, MueLu), on one rank: for bench_distributed.
//
// trilinos_peer FOLDER ROUNDS SECONDS. The folder has rows.bin and columns.bin (int32), values.bin and b.bin (float64,
// samples last). It writes trilinos.json, for each round the seconds of set-up and solve, the iterations, and the
// largest true residual of a sample.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "Stokhos_Tpetra_MP_Vector.hpp"

#include <Tpetra_Core.hpp>
#include <Tpetra_CrsGraph.hpp>
#include <Tpetra_CrsMatrix.hpp>
#include <Tpetra_Map.hpp>
#include <Tpetra_MultiVector.hpp>
#include <Tpetra_Vector.hpp>

#include "Stokhos_Ifpack2_MP_Vector.hpp"
#include "Ifpack2_Factory.hpp"
#include "Stokhos_Amesos2_MP_Vector.hpp"
#include "Amesos2_Factory.hpp"
#include "Stokhos_MueLu_MP_Vector.hpp"
#include "MueLu_CreateTpetraPreconditioner.hpp"

#include "Belos_TpetraAdapter_MP_Vector.hpp"
#include "BelosLinearProblem.hpp"
#include "BelosPseudoBlockCGSolMgr.hpp"

constexpr int S = 16;
using Node = Kokkos::Compat::KokkosSerialWrapperNode;
using Storage = Stokhos::StaticFixedStorage<int, double, S, Node::execution_space>;
using Scalar = Sacado::MP::Vector<Storage>;
using LO = Tpetra::Map<>::local_ordinal_type;
using GO = Tpetra::Map<>::global_ordinal_type;
using Map = Tpetra::Map<LO, GO, Node>;
using Graph = Tpetra::CrsGraph<LO, GO, Node>;
using Matrix = Tpetra::CrsMatrix<Scalar, LO, GO, Node>;
using MV = Tpetra::MultiVector<Scalar, LO, GO, Node>;
using Vector = Tpetra::Vector<Scalar, LO, GO, Node>;
using OP = Tpetra::Operator<Scalar, LO, GO, Node>;
using Teuchos::ParameterList;
using Teuchos::RCP;
using Teuchos::rcp;

template <class T> std::vector<T> numbers(const std::string &file) {
  std::FILE *f = std::fopen(file.c_str(), "rb");
  if (!f || std::fseek(f, 0, SEEK_END)) std::exit(2);
  std::vector<T> read(std::ftell(f) / sizeof(T));
  std::rewind(f);
  if (std::fread(read.data(), sizeof(T), read.size(), f) != read.size()) std::exit(2);
  std::fclose(f);
  return read;
}

RCP<Matrix> matrix_of(const std::string &folder, const RCP<const Map> &map) {
  const auto indptr = numbers<int>(folder + "/rows.bin"), columns = numbers<int>(folder + "/columns.bin");
  const auto values = numbers<double>(folder + "/values.bin");
  const int n = static_cast<int>(indptr.size()) - 1;
  auto graph = rcp(new Graph(map, 27));
  std::vector<GO> own;
  for (int i = 0; i < n; ++i) {
    own.assign(columns.begin() + indptr[i], columns.begin() + indptr[i + 1]);
    graph->insertGlobalIndices(i, Teuchos::ArrayView<const GO>(own.data(), own.size()));
  }
  graph->fillComplete();
  auto A = rcp(new Matrix(graph));
  std::vector<Scalar> row;
  for (int i = 0; i < n; ++i) {
    own.assign(columns.begin() + indptr[i], columns.begin() + indptr[i + 1]);
    row.assign(own.size(), Scalar(0.0));
    for (size_t k = 0; k < own.size(); ++k)
      for (int s = 0; s < S; ++s) row[k].fastAccessCoeff(s) = values[(size_t(indptr[i]) + k) * S + s];
    A->replaceGlobalValues(i, Teuchos::ArrayView<const GO>(own.data(), own.size()),
                           Teuchos::ArrayView<const Scalar>(row.data(), row.size()));
  }
  A->fillComplete();
  return A;
}

RCP<Vector> vector_of(const std::string &file, const RCP<const Map> &map) {
  const auto values = numbers<double>(file);
  auto b = rcp(new Vector(map));
  auto view = b->get1dViewNonConst();
  for (long i = 0; i < view.size(); ++i)
    for (int s = 0; s < S; ++s) view[i].fastAccessCoeff(s) = values[size_t(i) * S + s];
  return b;
}

// Ten power iterations, the default, underestimate the largest eigenvalue of a level at 64^3: CG ends with "non-positive
// p^H A p". Forty do not.
ParameterList options() {
  ParameterList all;
  all.set("verbosity", "none");
  all.set("multigrid algorithm", "sa");
  all.set("smoother: type", "CHEBYSHEV");
  ParameterList &smoother = all.sublist("smoother: params");
  smoother.set("chebyshev: degree", 2);
  smoother.set("chebyshev: eigenvalue max iterations", 40);
  all.set("coarse: max size", 1000);
  return all;
}

double largest_residual(const Matrix &A, const Vector &x, const Vector &b) {
  Vector r(b.getMap());
  A.apply(x, r);
  r.update(Scalar(1.0), b, Scalar(-1.0));
  auto left = r.get1dView(), right = b.get1dView();
  double largest = 0.0;
  for (int s = 0; s < S; ++s) {
    double above = 0.0, below = 0.0;
    for (long i = 0; i < left.size(); ++i) {
      above += left[i].fastAccessCoeff(s) * left[i].fastAccessCoeff(s);
      below += right[i].fastAccessCoeff(s) * right[i].fastAccessCoeff(s);
    }
    largest = std::max(largest, std::sqrt(above / below));
  }
  return largest;
}

int main(int argc, char **argv) {
  using clock = std::chrono::steady_clock;
  auto seconds = [](clock::time_point a, clock::time_point b) { return std::chrono::duration<double>(b - a).count(); };
  Tpetra::ScopeGuard scope(&argc, &argv);
  const std::string folder = argv[1];
  const int rounds = std::atoi(argv[2]);
  const double budget = std::atof(argv[3]);
  const auto comm = Tpetra::getDefaultComm();
  const auto n = numbers<double>(folder + "/b.bin").size() / S;
  const RCP<const Map> map = rcp(new Map(n, 0, comm));
  const auto A = matrix_of(folder, map);
  const auto b = vector_of(folder + "/b.bin", map);
  std::string found;
  const auto begin = clock::now();
  for (int k = 0; k <= rounds; ++k) {  // the first round takes new memory
    auto x = rcp(new Vector(map));
    auto list = options();
    const auto start = clock::now();
    RCP<OP> op = A;
    RCP<OP> M = MueLu::CreateTpetraPreconditioner<Scalar, LO, GO, Node>(op, list);
    const auto middle = clock::now();
    auto problem = rcp(new Belos::LinearProblem<Scalar, MV, OP>(A, x, b));
    problem->setLeftPrec(M);
    problem->setProblem();
    auto belos = rcp(new ParameterList);
    belos->set("Maximum Iterations", 200);
    belos->set("Convergence Tolerance", Scalar(1e-7));
    Belos::PseudoBlockCGSolMgr<Scalar, MV, OP> solver(problem, belos);
    const bool converged = solver.solve() == Belos::Converged;
    const auto end = clock::now();
    char row[256];
    std::snprintf(row, sizeof row,
                  "%s{\"setup\": %.6f, \"solve\": %.6f, \"iterations\": %d, \"converged\": %s, \"residual\": %.3e}",
                  found.empty() ? "" : ", ", seconds(start, middle), seconds(middle, end), solver.getNumIters(),
                  converged ? "true" : "false", largest_residual(*A, *x, *b));
    if (k) found += row;
    if (k && seconds(begin, clock::now()) > budget) break;
  }
  std::FILE *f = std::fopen((folder + "/trilinos.json").c_str(), "w");
  std::fprintf(f, "[%s]\n", found.c_str());
  std::fclose(f);
  return 0;
}
