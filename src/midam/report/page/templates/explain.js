for (const viewer of document.querySelectorAll(".viewer")) {
  viewer.addEventListener("input", ({ target }) => {
    if (target.type === "radio") viewer.dataset.map = target.value;
    else viewer.style.setProperty("--strength", target.value / 100);
  });
}
