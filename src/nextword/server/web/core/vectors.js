/* Vectors of words and texts: cosines, sums, and the plane of greatest variance, as in nextword.lens. */

export function cosine(a, b) {
  let product = 0;
  let squareA = 0;
  let squareB = 0;
  for (let i = 0; i < a.length; i += 1) {
    product += a[i] * b[i];
    squareA += a[i] * a[i];
    squareB += b[i] * b[i];
  }
  return product / Math.max(Math.sqrt(squareA * squareB), 1e-12);
}

/** Whether nothing is known of it: the vector of a text without known words is zero. */
export function isZero(vector) {
  return vector.every((value) => value === 0);
}

/** The vectors nearest to a query: [{index, cosine}], nearest first. */
export function nearest(query, vectors, { k = 10, without = [] } = {}) {
  return vectors
    .map((vector, index) => ({ index, cosine: cosine(query, vector) }))
    .filter(({ index }) => !without.includes(index) && !isZero(vectors[index]))
    .sort((a, b) => b.cosine - a.cosine || a.index - b.index)
    .slice(0, k);
}

/** "king - man + woman" as [{word, weight}], or null. Signs have spaces around them, since words may contain hyphens. */
export function parseSum(text) {
  const terms = [];
  let sign = 1;
  for (const part of text.trim().split(/\s+/)) {
    if (["+", "-", "−", "–"].includes(part)) {
      if (sign !== 0 || !terms.length) return null;
      sign = part === "+" ? 1 : -1;
    } else {
      if (sign === 0 || !part) return null;
      terms.push({ word: part, weight: sign });
      sign = 0;
    }
  }
  return sign === 0 && terms.length ? terms : null;
}

/** The weighted sum of unit vectors. */
export function sumOf(vectors, weights) {
  const total = new Array(vectors[0].length).fill(0);
  vectors.forEach((vector, index) => {
    const length = Math.max(Math.hypot(...vector), 1e-12);
    vector.forEach((value, i) => (total[i] += (weights[index] * value) / length));
  });
  return total;
}

/** Two coordinates for each vector, and the share of the variance along each: {points: [[x, y]], variance: [a, b]}.
 *  The coordinate of largest size is positive, so that a projection is the same everywhere. */
export function principalComponents(vectors) {
  const n = vectors.length;
  const width = vectors[0]?.length ?? 0;
  const mean = new Array(width).fill(0);
  for (const vector of vectors) vector.forEach((value, i) => (mean[i] += value / n));
  const centered = vectors.map((vector) => vector.map((value, i) => value - mean[i]));
  const gram = centered.map((a) => centered.map((b) => a.reduce((sum, value, i) => sum + value * b[i], 0)));
  const total = gram.reduce((sum, row, i) => sum + row[i], 0) || 1;
  const { values, vectors: axes } = eigen(gram);
  const order = values.map((_, i) => i).sort((a, b) => values[b] - values[a]);
  const points = vectors.map(() => [0, 0]);
  const variance = [0, 0];
  order.slice(0, 2).forEach((axis, dimension) => {
    const size = Math.sqrt(Math.max(values[axis], 0));
    const column = axes.map((row) => row[axis] * size);
    const largest = column.reduce((best, value) => (Math.abs(value) > Math.abs(best) ? value : best), 0);
    column.forEach((value, i) => (points[i][dimension] = largest < 0 ? -value : value));
    variance[dimension] = Math.max(values[axis], 0) / total;
  });
  return { points, variance };
}

/** Eigenvalues and eigenvectors (columns) of a symmetric matrix, by Jacobi's rotations. */
function eigen(matrix) {
  const n = matrix.length;
  const a = matrix.map((row) => Float64Array.from(row));
  const v = matrix.map((_, i) => Float64Array.from({ length: n }, (__, j) => (i === j ? 1 : 0)));
  const scale = a.reduce((sum, row) => sum + row.reduce((part, value) => part + value * value, 0), 0);
  for (let sweep = 0; sweep < 30; sweep += 1) {
    let off = 0;
    for (let p = 0; p < n; p += 1) for (let q = p + 1; q < n; q += 1) off += a[p][q] * a[p][q];
    if (off <= 1e-22 * scale) break;
    for (let p = 0; p < n; p += 1) {
      for (let q = p + 1; q < n; q += 1) {
        if (a[p][q] === 0) continue;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const tangent = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(tangent * tangent + 1);
        const s = tangent * c;
        for (let k = 0; k < n; k += 1) {
          const x = a[k][p];
          const y = a[k][q];
          a[k][p] = c * x - s * y;
          a[k][q] = s * x + c * y;
        }
        const rowP = a[p];
        const rowQ = a[q];
        for (let k = 0; k < n; k += 1) {
          const x = rowP[k];
          const y = rowQ[k];
          rowP[k] = c * x - s * y;
          rowQ[k] = s * x + c * y;
          const left = v[k][p];
          const right = v[k][q];
          v[k][p] = c * left - s * right;
          v[k][q] = s * left + c * right;
        }
      }
    }
  }
  return { values: a.map((row, i) => row[i]), vectors: v };
}
